package ioatmodel

import (
	"encoding/binary"
	"sync"
	"time"
)

// States of a channel, as CHANSTS has them.
const (
	active    = 0
	idle      = 1
	suspended = 2
	halted    = 3
	armed     = 4
)

// Bits of CHANERR.
const (
	errSource      = 0
	errDestination = 1
	errChain       = 4
	errCommand     = 5
	errControl     = 10
	errLength      = 11
	errCompletion  = 12
)

const (
	ctlCompletion = 1 << 3
	ctlFence      = 1 << 4
	ctlNull       = 1 << 5
	opCopy        = 0
	opFill        = 1

	cmdReset   = 0x20
	cmdResume  = 0x10
	cmdAbort   = 0x08
	cmdSuspend = 0x04

	// controlReport of CHANCTRL has errors written to the completion word.
	controlReport = 0x04

	addressMask = ^uint64(0x3f)
)

// channel is a channel and the goroutine that executes its descriptors.
type channel struct {
	m    *Model
	mu   sync.Mutex
	wake *sync.Cond

	control     uint16
	count, done uint16 // descriptors of the chain that are posted, and that have ended
	state       uint64
	last        uint64 // address of the descriptor that has ended last
	chain       uint64 // CHAINADDR
	next        uint64 // address of the next descriptor
	complete    uint64 // CHANCMP
	errs        uint32
	fresh       bool // CHAINADDR was written: the chain begins there
	resetting   bool
	suspending  bool
	hung        bool
	stuck       bool // a reset does not end
	executing   bool // the goroutine executes a descriptor
	reads       int  // of CHANSTS, until the end of a late descriptor is reported
	closed      bool
	zombie      descriptor // in which the channel hangs forever
	ahead       ahead
	spare       [2][]byte
	n           Counts
}

func newChannel(m *Model) *channel {
	ch := &channel{m: m, state: halted}
	ch.wake = sync.NewCond(&ch.mu)
	return ch
}

func (ch *channel) stop() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.closed = true
	ch.wake.Signal()
}

func (ch *channel) live() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for {
		switch {
		case ch.closed:
			return
		case ch.resetting && !ch.stuck:
			ch.reset()
		case ch.suspending && !ch.hung:
			ch.suspending, ch.state = false, suspended
		case ch.runs():
			ch.step()
		default:
			ch.wake.Wait()
		}
	}
}

// due reports whether the goroutine has anything to do.
func (ch *channel) due() bool {
	return ch.resetting && !ch.stuck || ch.suspending && !ch.hung || ch.runs()
}

// runs reports whether there is a descriptor to execute.
func (ch *channel) runs() bool {
	return ch.done != ch.count && !ch.hung && (ch.state == active || ch.state == idle || ch.state == armed) && ch.m.space.master.Load()
}

func (ch *channel) reset() {
	ch.control, ch.count, ch.done = 0, 0, 0
	ch.state, ch.last, ch.chain, ch.complete = halted, 0, 0, 0
	ch.fresh, ch.resetting, ch.suspending, ch.hung = false, false, false, false
	ch.ahead.at = 0
	ch.n.Resets++
}

// registers returns the registers, for a read at an offset.
func (ch *channel) registers(off uint32) (b [channelBytes]byte) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if off == 0x08 && ch.reads > 0 {
		ch.reads--
		ch.wake.Signal()
	}
	le := binary.LittleEndian
	le.PutUint16(b[0x00:], ch.control)
	if ch.resetting {
		b[0x04] = cmdReset
	}
	le.PutUint16(b[0x06:], ch.count)
	le.PutUint64(b[0x08:], ch.status())
	le.PutUint64(b[0x10:], ch.chain)
	le.PutUint64(b[0x18:], ch.complete)
	le.PutUint64(b[0x20:], ch.last)
	le.PutUint32(b[0x28:], ch.errs)
	return b
}

func (ch *channel) status() uint64 { return ch.last&addressMask | ch.state }

func (ch *channel) write(off, width uint32, v uint64) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	defer ch.wake.Signal()
	switch off {
	case 0x00:
		ch.control = uint16(v)
	case 0x04:
		ch.command(byte(v))
	case 0x06:
		if ch.n.Doorbells++; ch.m.fault(ch.n.Doorbells, true) == nil {
			ch.count = uint16(v)
			if ch.runs() {
				ch.state = active
			}
		}
	case 0x10, 0x14:
		put(&ch.chain, off-0x10, width, v)
		if off == 0x14 || width == 8 {
			ch.begin()
		}
	case 0x18, 0x1c:
		put(&ch.complete, off-0x18, width, v)
	case 0x28:
		ch.errs &^= uint32(v)
	}
}

// put writes the lower or the upper half of a register, or all of it.
func put(to *uint64, off, width uint32, v uint64) {
	if width == 8 {
		*to = v
		return
	}
	shift := 8 * off
	*to = *to&^(0xffffffff<<shift) | v&0xffffffff<<shift
}

// begin arms the channel. It ignores CHAINADDR while there are errors.
func (ch *channel) begin() {
	own := ch.m.cfg.Version < 0x33 && ch.m.space.errors() != 0
	if (ch.state == halted || ch.state == suspended) && ch.errs == 0 && !own {
		ch.state, ch.fresh = armed, true
	}
}

func (ch *channel) command(v byte) {
	switch {
	case v&cmdReset != 0:
		ch.resetting = true
	case v&cmdSuspend != 0:
		ch.suspending = ch.suspending || ch.state != halted && ch.state != suspended
	case v&cmdResume != 0:
		if ch.state == suspended {
			ch.state = active
		}
	case v&cmdAbort != 0:
		ch.state = halted
	default:
		ch.fail(errCommand)
	}
}

// fail halts the channel.
func (ch *channel) fail(bit uint) {
	ch.errs |= 1 << bit
	if ch.m.cfg.Version < 0x33 {
		ch.m.space.fail(1 << bit)
	}
	ch.state = halted
	ch.n.Halts++
	if ch.control&controlReport != 0 && bit != errCompletion {
		ch.m.mem.mu.RLock()
		ch.report(ch.status())
		ch.m.mem.mu.RUnlock()
	}
}

// report writes the completion word. It returns false if the address is invalid. The caller
// holds the lock of the memory.
func (ch *channel) report(v uint64) bool {
	mem := ch.m.mem.at(ch.complete, 8)
	if mem == nil || ch.complete%8 != 0 {
		return false
	}
	if ch.m.space.master.Load() {
		store(mem, v)
	}
	return true
}

// descriptor is a descriptor as the device has fetched it.
type descriptor struct {
	at             uint64
	size, ctl      uint32
	src, dst, next uint64
}

// step executes a descriptor. ch.mu is held, except while the memory is accessed, so that
// commands can come meanwhile.
func (ch *channel) step() {
	ch.executing = true
	defer func() { ch.executing = false }()
	d := descriptor{at: ch.next}
	if ch.fresh {
		d.at = ch.chain
	}
	ch.state = active
	if bit, ok := ch.fetch(&d); !ok {
		ch.fail(bit)
		return
	}
	ch.fresh = false
	var f *Fault
	if d.ctl&ctlNull != 0 {
		ch.n.Nulls++
	} else {
		ch.n.Copies++
		ch.n.Bytes += uint64(d.size)
		f = ch.m.fault(ch.n.Copies, false)
	}
	if f != nil && ch.disturb(f, &d) {
		return
	}
	if bit, ok := ch.execute(&d); !ok {
		ch.fail(bit)
		return
	}
	if f != nil && f.Kind == Late {
		for ch.reads, ch.executing = f.Reads, false; ch.reads > 0 && !ch.closed && !ch.resetting; {
			ch.wake.Wait()
		}
		ch.reads = 0
	}
	ch.end(&d, f)
}

func (ch *channel) fetch(d *descriptor) (bit uint, ok bool) {
	ch.m.mem.mu.RLock()
	defer ch.m.mem.mu.RUnlock()
	b := ch.m.mem.at(d.at, 64)
	if b == nil || d.at%64 != 0 {
		return errChain, false
	}
	le := binary.LittleEndian
	d.size, d.ctl = le.Uint32(b), le.Uint32(b[4:])
	d.src, d.dst, d.next = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])
	op := d.ctl >> 24
	switch {
	case op != opCopy && op != opFill:
		return errControl, false
	case d.ctl&ctlNull == 0 && (d.size == 0 || uint64(d.size) > 1<<ch.m.cfg.XferCap):
		return errLength, false
	}
	return 0, true
}

// execute carries out the copy, without ch.mu. With relaxed ordering, the completion word
// passes the data.
func (ch *channel) execute(d *descriptor) (bit uint, ok bool) {
	if d.ctl&ctlNull != 0 {
		return 0, true
	}
	early := ch.m.space.relaxed.Load()
	complete := d.at | active
	more := ch.count-ch.done > 1
	ch.mu.Unlock()
	defer ch.mu.Lock()
	ch.m.mem.mu.RLock()
	defer ch.m.mem.mu.RUnlock()
	dst := ch.m.mem.at(d.dst, uint64(d.size))
	if dst == nil {
		return errDestination, false
	}
	if early {
		ch.report(complete)
		time.Sleep(passed)
	}
	if d.ctl>>24 == opFill {
		for i := range dst {
			dst[i] = byte(d.src >> (8 * (i % 8)))
		}
		return 0, true
	}
	src := ch.m.mem.at(d.src, uint64(d.size))
	if src == nil {
		return errSource, false
	}
	if ch.ahead.at == d.at {
		src = ch.ahead.data
	}
	next := ahead{}
	if more {
		next = ch.readAhead(d.next)
	}
	if ch.m.space.master.Load() {
		copy(dst, src)
	}
	ch.ahead = next
	return 0, true
}

// passed is the time by which the completion word passes the data with relaxed ordering.
const passed = 200 * time.Microsecond

// ahead is the source of a posted descriptor, which the device has read before it writes the
// destination of the descriptor in front of it.
type ahead struct {
	at   uint64 // address of the descriptor; 0 for none
	data []byte
}

// aheadMax is the longest source that is read ahead.
const aheadMax = 64 << 10

// readAhead reads the source of a descriptor. The caller holds the lock of the memory.
func (ch *channel) readAhead(at uint64) ahead {
	b := ch.m.mem.at(at, 64)
	if b == nil {
		return ahead{}
	}
	le := binary.LittleEndian
	size, ctl := le.Uint32(b), le.Uint32(b[4:])
	src := ch.m.mem.at(le.Uint64(b[8:]), uint64(size))
	if src == nil || size > aheadMax || ctl&(ctlNull|ctlFence) != 0 || ctl>>24 != opCopy {
		return ahead{}
	}
	spare := &ch.spare[ch.n.Copies%2] // the other one may hold the source of the present copy
	*spare = append((*spare)[:0], src...)
	return ahead{at, *spare}
}

// end reports the end of a descriptor.
func (ch *channel) end(d *descriptor, f *Fault) {
	if ch.resetting {
		return // the reset discards it
	}
	ch.done++
	ch.last, ch.next = d.at, d.next
	if ch.state == active && ch.done == ch.count {
		ch.state = idle
	}
	if d.ctl&ctlCompletion == 0 || f != nil && f.Kind == LoseWord {
		return
	}
	v := ch.status()
	if f != nil && f.Kind == WrongWord {
		v = 0xbad000 | ch.state
	}
	ch.m.mem.mu.RLock()
	ok := ch.report(v)
	ch.m.mem.mu.RUnlock()
	if !ok {
		ch.fail(errCompletion)
	}
}
