package ioat

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions below do one access each. They are not inlined, so that the compiler neither
// merges nor moves the access. They are plain moves, because an atomic store of Go reads the
// register too (XCHG). An x86 processor orders stores to registers behind all earlier stores.

//go:noinline
func load8(b []byte, off uint32) uint8 { return *(*uint8)(unsafe.Pointer(&b[off])) }

//go:noinline
func load32(b []byte, off uint32) uint32 { return *(*uint32)(unsafe.Pointer(&b[off : off+4][0])) }

//go:noinline
func load64(b []byte, off uint32) uint64 { return *(*uint64)(unsafe.Pointer(&b[off : off+8][0])) }

//go:noinline
func store8(b []byte, off uint32, v uint8) { *(*uint8)(unsafe.Pointer(&b[off])) = v }

//go:noinline
func store16(b []byte, off uint32, v uint16) { *(*uint16)(unsafe.Pointer(&b[off : off+2][0])) = v }

//go:noinline
func store32(b []byte, off uint32, v uint32) { *(*uint32)(unsafe.Pointer(&b[off : off+4][0])) = v }

//go:noinline
func store64(b []byte, off uint32, v uint64) { *(*uint64)(unsafe.Pointer(&b[off : off+8][0])) = v }

// words returns memory for a structure of VFIO, whose first field is its length.
func words(n int) []byte {
	w := make([]uint64, (n+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), n)
	native.PutUint32(b, uint32(n))
	return b
}

// int ioctl(int fd, unsigned long request, unsigned long value)
func ioctlValue(fd int, request, value uintptr) (int, error) {
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, value)
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}

// int ioctl(int fd, unsigned long request, struct ... *argument)
func ioctlBytes(fd int, request uintptr, b []byte) error {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&b[0])))
		switch e {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return e
	}
}

// int ioctl(int fd, unsigned long request, int *descriptor)
func ioctlFD(fd int, request uintptr, other int) error {
	value := int32(other)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&value)))
	if e != 0 {
		return e
	}
	return nil
}

// int ioctl(int fd, unsigned long request, char *name) returns a descriptor.
func ioctlName(fd int, request uintptr, name *byte) (int, error) {
	n, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(name)))
	if e != 0 {
		return -1, e
	}
	return int(n), nil
}
