// Package wake has the means by which the two sides of a session wake each other: a futex in the
// segment for the application, an eventfd for the engine (LAYOUT.md §8). It also counts the CPUs that
// this process may use, on which waits depend.
package wake

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Shared futex operations (linux/futex.h): without the private flag, since the
// word is in memory of two processes.
const (
	futexWait = 0
	futexWake = 1
)

// Wait blocks while *word == old, at most timeout (0: no limit). It returns early after a wake, a
// signal or a change of the word; callers poll again in any case.
func Wait(word *uint32, old uint32, timeout time.Duration) error {
	var ts *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(old), uintptr(unsafe.Pointer(ts)), 0, 0)
	if e == 0 || errors.Is(e, unix.EAGAIN) || errors.Is(e, unix.EINTR) || errors.Is(e, unix.ETIMEDOUT) {
		return nil
	}
	return e
}

// Wake wakes every waiter on word.
func Wake(word *uint32) error {
	_, _, e := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1<<30, 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// Yield gives the CPU to another thread. It is a raw system call, because informing the Go scheduler
// would cost more than the yield.
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
