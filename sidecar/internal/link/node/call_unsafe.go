package node

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ssize_t send(int sockfd, const void *buf, size_t len, int flags)
// is a raw call that never blocks: the Go scheduler need not know of it.
func send(fd int, b []byte) error {
	_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
