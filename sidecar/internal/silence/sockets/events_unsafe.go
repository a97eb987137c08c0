package sockets

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events returns the events that there are, in the memory of list. The call is raw, since it
// does not block and the Go scheduler need not know of it: that halves its instructions.
//
//	int epoll_pwait(int epfd, struct epoll_event *events, int maxevents, int timeout, const sigset_t *sigmask, size_t sigsetsize)
func Events(epoll int, list []unix.EpollEvent) []unix.EpollEvent {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(&list[0])), uintptr(len(list)), 0, 0, 0)
	if e != 0 {
		return list[:0] // EINTR: the next call finds them
	}
	return list[:n]
}
