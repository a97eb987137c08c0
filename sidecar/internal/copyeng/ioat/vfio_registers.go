package ioat

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// registerFile accesses BAR 0.
type registerFile interface {
	Registers
	close() error
}

// window is a BAR that is mapped into this process.
type window []byte

func (w window) Read8(off uint32) uint8       { return load8(w, off) }
func (w window) Read32(off uint32) uint32     { return load32(w, off) }
func (w window) Read64(off uint32) uint64     { return load64(w, off) }
func (w window) Write8(off uint32, v uint8)   { store8(w, off, v) }
func (w window) Write16(off uint32, v uint16) { store16(w, off, v) }
func (w window) Write32(off uint32, v uint32) { store32(w, off, v) }
func (w window) Write64(off uint32, v uint64) { store64(w, off, v) }
func (w window) close() error                 { return unix.Munmap(w) }

// calls is a BAR that the kernel accesses for this process. What cannot be read reads as ones,
// as the registers of a device that has vanished.
type calls struct {
	fd     int
	offset int64
}

func (c calls) read(off uint32, n int) uint64 {
	b := [8]byte{255, 255, 255, 255, 255, 255, 255, 255}
	if got, err := unix.Pread(c.fd, b[:n], c.offset+int64(off)); err != nil || got != n {
		return ^uint64(0)
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (c calls) write(off uint32, n int, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	// A write that fails shows as a channel that makes no progress.
	_, _ = unix.Pwrite(c.fd, b[:n], c.offset+int64(off))
}

func (c calls) Read8(off uint32) uint8       { return uint8(c.read(off, 1)) }
func (c calls) Read32(off uint32) uint32     { return uint32(c.read(off, 4)) }
func (c calls) Read64(off uint32) uint64     { return c.read(off, 8) }
func (c calls) Write8(off uint32, v uint8)   { c.write(off, 1, uint64(v)) }
func (c calls) Write16(off uint32, v uint16) { c.write(off, 2, uint64(v)) }
func (c calls) Write32(off uint32, v uint32) { c.write(off, 4, uint64(v)) }
func (c calls) Write64(off uint32, v uint64) { c.write(off, 8, v) }
func (c calls) close() error                 { return nil }

// gone is the registers of a device that is closed.
type gone struct{}

func (gone) Read8(uint32) uint8     { return 0xff }
func (gone) Read32(uint32) uint32   { return ^uint32(0) }
func (gone) Read64(uint32) uint64   { return ^uint64(0) }
func (gone) Write8(uint32, uint8)   {}
func (gone) Write16(uint32, uint16) {}
func (gone) Write32(uint32, uint32) {}
func (gone) Write64(uint32, uint64) {}
func (gone) close() error           { return nil }

// Read8 and the methods below access BAR 0.
func (v *VFIO) Read8(off uint32) uint8           { return v.regs.Read8(off) }
func (v *VFIO) Read32(off uint32) uint32         { return v.regs.Read32(off) }
func (v *VFIO) Read64(off uint32) uint64         { return v.regs.Read64(off) }
func (v *VFIO) Write8(off uint32, value uint8)   { v.regs.Write8(off, value) }
func (v *VFIO) Write16(off uint32, value uint16) { v.regs.Write16(off, value) }
func (v *VFIO) Write32(off uint32, value uint32) { v.regs.Write32(off, value) }
func (v *VFIO) Write64(off uint32, value uint64) { v.regs.Write64(off, value) }
