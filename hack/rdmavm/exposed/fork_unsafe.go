package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fork makes a child that shares this process's pages until either writes to them, does
// nothing for two seconds, and ends. It makes system calls only: nothing of the Go runtime
// but this thread is there.
//
//go:nosplit
func fork() (pid int, err error) {
	p, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	if p == 0 {
		t := unix.Timespec{Sec: 2}
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return int(p), nil
}
