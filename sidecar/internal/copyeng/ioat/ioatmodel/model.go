package ioatmodel

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Kind is a kind of fault.
type Kind int

// The faults. Each concerns one descriptor with a copy, except LoseDoorbell.
const (
	// Halt halts the channel with Fault.Bit of CHANERR, before the copy.
	Halt Kind = iota
	// HaltLater halts it after half of the copy, and leaves wrong bytes in the other half.
	HaltLater
	// Late reports the end of the copy only when CHANSTS has been read Fault.Reads times.
	Late
	// LoseWord does not write the completion word.
	LoseWord
	// WrongWord writes the address of no descriptor to the completion word.
	WrongWord
	// Hang stops the channel until it is reset, while it says that it is active.
	Hang
	// HangForever is like Hang, and the channel does not end a reset. See Revive.
	HangForever
	// Suspend suspends the channel without a command.
	Suspend
	// Vanish removes the device: all registers read as ones.
	Vanish
	// LoseDoorbell ignores a write of DMACOUNT.
	LoseDoorbell
)

// Fault is a fault and when it happens.
type Fault struct {
	Kind  Kind
	On    uint64 // number of the copy (or of the doorbell), from 1; 0 for none
	Every uint64 // all multiples of this number; 0 for none
	Bit   uint   // of CHANERR
	Reads int
}

func (f *Fault) hits(n uint64) bool {
	return n == f.On || f.Every != 0 && n%f.Every == 0
}

// Config describes a device. The zero value is a device of version 3.3 with one channel, and
// copies of up to 1 MiB.
type Config struct {
	ID       uint16 // PCI device id; 0 means Ice Lake's
	Version  uint8  // CBVER; 0 means 3.3
	XferCap  uint8  // base 2 logarithm of the longest copy; 0 means 20
	Channels int    // 0 means 1
	// Conventional removes the PCI Express capability, and with it relaxed ordering and the
	// configuration space from 256.
	Conventional bool
	// Relaxed makes it impossible to disable relaxed ordering.
	Relaxed bool
	// Class replaces the class of the device, unless it is 0.
	Class uint16
	// LockMax bounds the bytes that Map maps, unless it is 0.
	LockMax uint64
	Faults  []Fault
}

// Model is a device. Its methods may be called on any goroutine.
type Model struct {
	cfg   Config
	space space
	mem   memory
	chans []*channel
	gone  atomic.Bool // it has vanished
	wait  sync.WaitGroup
}

// New starts a device.
func New(c Config) *Model {
	if c.ID == 0 {
		c.ID = 0x0b00
	}
	if c.Version == 0 {
		c.Version = 0x33
	}
	if c.XferCap == 0 {
		c.XferCap = 20
	}
	if c.Channels == 0 {
		c.Channels = 1
	}
	c.Faults = slices.Clone(c.Faults)
	m := &Model{cfg: c, mem: memory{limit: c.LockMax, next: firstIOVA}}
	m.space.init(&c)
	for range c.Channels {
		ch := newChannel(m)
		m.chans = append(m.chans, ch)
		m.wait.Go(ch.live)
	}
	return m
}

// Close stops the device. Its memory is unmapped.
func (m *Model) Close() error {
	for _, ch := range m.chans {
		ch.stop()
	}
	m.wait.Wait()
	m.mem.clear()
	return nil
}

// Counts are numbers of what a device has executed.
type Counts struct{ Copies, Bytes, Nulls, Doorbells, Halts, Resets uint64 }

// Counts returns the sums over all channels.
func (m *Model) Counts() (sum Counts) {
	for _, ch := range m.chans {
		ch.mu.Lock()
		sum.Copies += ch.n.Copies
		sum.Bytes += ch.n.Bytes
		sum.Nulls += ch.n.Nulls
		sum.Doorbells += ch.n.Doorbells
		sum.Halts += ch.n.Halts
		sum.Resets += ch.n.Resets
		ch.mu.Unlock()
	}
	return sum
}

// Settled reports whether nothing happens before the next access to a register. A test whose
// clock runs only meanwhile does not depend on the load of the machine.
func (m *Model) Settled() bool {
	for _, ch := range m.chans {
		ch.mu.Lock()
		busy := ch.executing || ch.due() && (ch.reads == 0 || ch.resetting)
		ch.mu.Unlock()
		if busy {
			return false
		}
	}
	return true
}

// fault returns the fault of the n-th copy, or of the n-th doorbell.
func (m *Model) fault(n uint64, doorbell bool) *Fault {
	for i := range m.cfg.Faults {
		if f := &m.cfg.Faults[i]; (f.Kind == LoseDoorbell) == doorbell && f.hits(n) {
			return f
		}
	}
	return nil
}

// channelsAt is the offset of the first channel's registers, and their size.
const channelsAt, channelBytes = 0x80, 0x80

// Read reads a register of BAR 0 with a width of 1, 2, 4 or 8 bytes.
func (m *Model) Read(off, width uint32) uint64 {
	ones := ^uint64(0) >> (64 - 8*width)
	if m.gone.Load() {
		return ones
	}
	n := int(off/channelBytes) - 1
	switch {
	case n < 0:
		b := m.common()
		return little(b[:], off, width)
	case n >= len(m.chans):
		return 0
	}
	b := m.chans[n].registers(off % channelBytes)
	return little(b[:], off%channelBytes, width)
}

// Write writes a register of BAR 0.
func (m *Model) Write(off, width uint32, v uint64) {
	if n := int(off/channelBytes) - 1; n >= 0 && n < len(m.chans) && !m.gone.Load() {
		m.chans[n].write(off%channelBytes, width, v)
	}
}

// common returns the registers of the device.
func (m *Model) common() (b [channelBytes]byte) {
	b[0x00] = byte(m.cfg.Channels)
	b[0x01] = m.cfg.XferCap
	b[0x08] = m.cfg.Version
	return b
}

// little returns a little-endian number; bytes beyond the end are 0.
func little(b []byte, off, width uint32) (v uint64) {
	for i := range width {
		if off+i < uint32(len(b)) {
			v |= uint64(b[off+i]) << (8 * i)
		}
	}
	return v
}

// The methods of ioat.Device.

func (m *Model) Read8(off uint32) uint8              { return uint8(m.Read(off, 1)) }
func (m *Model) Read32(off uint32) uint32            { return uint32(m.Read(off, 4)) }
func (m *Model) Read64(off uint32) uint64            { return m.Read(off, 8) }
func (m *Model) Write8(off uint32, v uint8)          { m.Write(off, 1, uint64(v)) }
func (m *Model) Write16(off uint32, v uint16)        { m.Write(off, 2, uint64(v)) }
func (m *Model) Write32(off uint32, v uint32)        { m.Write(off, 4, uint64(v)) }
func (m *Model) Write64(off uint32, v uint64)        { m.Write(off, 8, v) }
func (m *Model) Unmap(mem []byte, iova uint64) error { return m.mem.unmap(mem, iova) }

// Map makes memory accessible at an address that has the same offset in its page. Regions are
// never adjacent.
func (m *Model) Map(mem []byte) (uint64, error) { return m.mem.add(mem) }
