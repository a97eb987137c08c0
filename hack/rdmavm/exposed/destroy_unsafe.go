package main

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// destroyPair destroys a queue pair of a context, made by any process: what the kernel's
// DESTROY_QP does, by the ioctl that package uverbs explains.
func destroyPair(fd int, driver, handle uint32) error {
	type attr struct {
		id, length, flags, reserved uint16
		data                        uint64
	}
	var out [4]byte // struct ib_uverbs_destroy_qp_resp
	in := struct {
		response          uint64
		handle, reserved2 uint32
	}{handle: handle}
	var pin runtime.Pinner // the addresses go through a struct as numbers
	defer pin.Unpin()
	pin.Pin(&in)
	pin.Pin(&out)
	c := struct {
		length, object, method, attrs uint16
		reserved                      uint64
		driver, reserved2             uint32
		list                          [3]attr
	}{attrs: 3, driver: driver}
	c.length = uint16(unsafe.Sizeof(c))
	c.list[0] = attr{id: 2, length: 8, flags: 1, data: 27}
	c.list[1] = attr{id: 0, length: uint16(unsafe.Sizeof(in)), flags: 1, data: uint64(uintptr(unsafe.Pointer(&in)))}
	c.list[2] = attr{id: 1, length: uint16(unsafe.Sizeof(out)), flags: 1, data: uint64(uintptr(unsafe.Pointer(&out)))}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), 0xc0181b01, uintptr(unsafe.Pointer(&c))); e != 0 {
		return e
	}
	return nil
}
