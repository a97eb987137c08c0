package ether

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below are raw: the socket never blocks.

// write writes the pending pieces.
func (p *pipe) write() (int, error) {
	n := 0
	for _, x := range p.pieces[p.first:] {
		p.vec[n].Base = &x.mem[0]
		p.vec[n].SetLen(len(x.mem))
		n++
	}
	r, _, e := unix.RawSyscall(unix.SYS_WRITEV, uintptr(p.fd), uintptr(unsafe.Pointer(&p.vec[0])), uintptr(n))
	return result(r, e)
}

// read reads at most n bytes into dst.
func (p *pipe) read(n int) (int, error) {
	r, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(p.fd), uintptr(unsafe.Pointer(&p.dst[0])), uintptr(n))
	return result(r, e)
}

func result(r uintptr, e unix.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(r), nil
}
