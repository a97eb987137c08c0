package wake

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CPU is the processor that the calling thread runs on, or -1 where the kernel
// does not say. It is a system call, of some 100 ns.
func CPU() int {
	var cpu uint32
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e != 0 {
		return -1
	}
	return int(cpu)
}

// Monotonic is CLOCK_MONOTONIC, which all processes of this machine share.
func Monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock is always there
	return time.Duration(t.Nano())
}

// ThreadTime is the processor time that the calling thread has used. It is a
// system call, of some 200 ns.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if _, _, e := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
