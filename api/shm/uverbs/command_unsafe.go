package uverbs

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface (rdma_user_ioctl_cmds.h, ib_user_ioctl_cmds.h): an ioctl with a
// header and attributes, which carries a command of the older interface (ib_user_verbs.h). That
// interface itself accepts no write() of a process that has not opened the device.
const (
	verbsIoctl = 0xc0181b01 // _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)

	objectDevice      = 0
	methodInvokeWrite = 0

	attrCoreIn, attrCoreOut, attrWriteCommand = 0, 1, 2
	attrMandatory                             = 1

	commandQueryPort, commandRegister, commandDeregister = 2, 9, 13
)

type header struct {
	length, object, method, attrs uint16
	reserved                      uint64
	driver, reserved2             uint32
}

type attr struct {
	id, length, flags, reserved uint16
	data                        uint64
}

type call struct {
	header
	list [3]attr
}

// invoke executes a command. The kernel reads in, and writes out if it has a length.
func invoke(fd int, driver uint32, command uint64, in, out []byte) error {
	c := call{header: header{object: objectDevice, method: methodInvokeWrite, driver: driver}}
	add := func(id, length uint16, data uint64) {
		c.list[c.attrs] = attr{id: id, length: length, flags: attrMandatory, data: data}
		c.attrs++
	}
	var pin runtime.Pinner // the addresses go through a struct as numbers
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(in))
	add(attrWriteCommand, 8, command)
	if len(in) <= 8 { // in the attribute itself
		var b [8]byte
		copy(b[:], in)
		add(attrCoreIn, uint16(len(in)), binary.NativeEndian.Uint64(b[:]))
	} else {
		add(attrCoreIn, uint16(len(in)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(in)))))
	}
	if len(out) > 0 {
		pin.Pin(unsafe.SliceData(out))
		add(attrCoreOut, uint16(len(out)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(out)))))
	}
	c.length = uint16(unsafe.Sizeof(c.header) + uintptr(c.attrs)*unsafe.Sizeof(attr{}))
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), verbsIoctl, uintptr(unsafe.Pointer(&c))); e != 0 {
		return e
	}
	return nil
}

func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
