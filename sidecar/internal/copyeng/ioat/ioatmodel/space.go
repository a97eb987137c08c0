package ioatmodel

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
)

// The configuration space.
const (
	spaceBytes    = 4096
	conventional  = 256 // the size without PCI Express
	cfgCommand    = 0x04
	cfgBAR        = 0x10
	cfgExpress    = 0x40
	cfgDevControl = cfgExpress + 8
	cfgErrorInt   = 0x180

	master   = 0x4
	relaxed  = 0x10
	barBytes = 0x4000
)

// space is the configuration space.
type space struct {
	mu       sync.Mutex
	size     uint32
	b        [spaceBytes]byte
	writable [spaceBytes]byte // bits that a write changes
	clears   [spaceBytes]byte // bits that a written 1 clears
	master   atomic.Bool      // the device may access memory
	relaxed  atomic.Bool
}

func (s *space) init(c *Config) {
	le := binary.LittleEndian
	class := uint16(0x0880)
	if c.Class != 0 {
		class = c.Class
	}
	le.PutUint16(s.b[0x00:], 0x8086)
	le.PutUint16(s.b[0x02:], c.ID)
	s.b[0x08] = 1 // revision
	le.PutUint16(s.b[0x0a:], class)
	le.PutUint16(s.b[0x2c:], 0x8086)
	s.b[0x3d] = 1 // interrupt pin
	le.PutUint16(s.writable[cfgCommand:], 0x0547)
	le.PutUint32(s.writable[cfgBAR:], ^uint32(barBytes-1))
	s.writable[0x3c] = 0xff
	le.PutUint32(s.clears[cfgErrorInt:], ^uint32(0))
	if s.size = spaceBytes; c.Conventional {
		s.size = conventional
		return
	}
	s.b[0x06] = 0x10 // there is a list of capabilities
	s.b[0x34] = cfgExpress
	s.b[cfgExpress] = 0x10
	le.PutUint16(s.b[cfgDevControl:], 0x2810|relaxed)
	le.PutUint16(s.writable[cfgDevControl:], 0xffff)
	if c.Relaxed {
		s.writable[cfgDevControl] &^= relaxed
	}
	s.relaxed.Store(true)
}

// ReadConfig reads the configuration space.
func (m *Model) ReadConfig(off, width uint32) (uint32, error) {
	if off+width > m.space.size {
		return 0, fmt.Errorf("ioatmodel: no configuration space at %#x", off)
	}
	m.space.mu.Lock()
	defer m.space.mu.Unlock()
	return uint32(little(m.space.b[:], off, width)), nil
}

// WriteConfig writes the configuration space.
func (m *Model) WriteConfig(off, width, v uint32) error {
	if off+width > m.space.size {
		return fmt.Errorf("ioatmodel: no configuration space at %#x", off)
	}
	s := &m.space
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range width {
		at, b := off+i, byte(v>>(8*i))
		s.b[at] = (s.b[at]&^s.writable[at] | b&s.writable[at]) &^ (b & s.clears[at])
	}
	s.master.Store(s.b[cfgCommand]&master != 0)
	s.relaxed.Store(s.b[cfgDevControl]&relaxed != 0)
	return nil
}

// bar returns the address of BAR 0.
func (s *space) bar() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return little(s.b[:], cfgBAR, 4)
}

// errors returns CHANERR_INT.
func (s *space) errors() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint32(little(s.b[:], cfgErrorInt, 4))
}

// fail sets bits of CHANERR_INT.
func (s *space) fail(bits uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	binary.LittleEndian.PutUint32(s.b[cfgErrorInt:], binary.LittleEndian.Uint32(s.b[cfgErrorInt:])|bits)
}
