package tcp_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// meminfo has what SO_MEMINFO returns, in the kernel's order (linux/sock_diag.h).
type meminfo struct{ received, receiveLimit, sent, sendLimit, reserved, queued, options, backlog, drops uint32 }

func (m *meminfo) read(fd int) error {
	n := uint32(unsafe.Sizeof(*m))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(m)), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
