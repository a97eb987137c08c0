package node

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

const (
	step    = 16 << 10 // bytes of a large payload that the peer hears of at once: it reads them while more are written
	partMin = 16 << 10 // room for which a large frame begins that does not fit
)

// send writes a frame, or the beginning of a large one, or reports that there is no room.
func (c *conn) send(f *link.Frame) bool {
	if len(c.rest) > 0 && !c.goOn() || c.err != nil {
		return false
	}
	room, err := c.out.room()
	if err != nil {
		c.fail(err)
		return false
	}
	n := int(f.Head.Length)
	if off, ok := c.lies(f); ok {
		if room < wire.HeaderBytes+refBytes || c.behind() {
			c.needs = wire.HeaderBytes + refBytes
			return false
		}
		c.needs = 0
		c.refer(f, off)
		return true
	}
	need := wire.HeaderBytes + aligned(n)
	if room < need && (n <= wholeMax || room < wire.HeaderBytes+c.part(n)) {
		c.needs = min(need, wire.HeaderBytes+max(c.part(n), aligned(min(n, wholeMax))))
		return false
	}
	f.Head.Encode((*[wire.HeaderBytes]byte)(c.out.span(wire.HeaderBytes)))
	c.out.at += wire.HeaderBytes
	c.needs = 0
	switch {
	case n == 0:
	case f.Payload.Region == 0:
		c.out.put(f.Inline[:n])
		c.out.pad()
	default:
		c.rest, c.seq = c.l.memory.Bytes(f.Payload)[:n], f.Head.Seq
		c.write(room - wire.HeaderBytes)
	}
	return true
}

// write writes as much of the rest as there is room for.
func (c *conn) write(room int) {
	room &^= frameAlign - 1 // so that what ends the frame has room, too
	for len(c.rest) > 0 && room > 0 {
		n := min(len(c.rest), room, step)
		c.out.put(c.rest[:n])
		room -= n
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil
			c.out.pad()
		}
		if n == step {
			c.tell()
		}
	}
	if len(c.rest) > 0 {
		c.needs = c.part(len(c.rest))
	}
}

// part is the room for which it is worth going on with n bytes of a payload.
func (c *conn) part(n int) int { return min(partMin, len(c.out.mem)/2, aligned(n)) }

// goOn writes more of a frame that did not fit, and reports whether all of it is written.
func (c *conn) goOn() bool {
	room, err := c.out.room()
	if err != nil {
		c.fail(err)
		return false
	}
	if room < c.part(len(c.rest)) {
		return false
	}
	c.needs = 0
	c.write(room)
	c.tell()
	return len(c.rest) == 0
}

// unblock goes on with what waited for room, and reports whether there is some.
func (c *conn) unblock() bool {
	if c.needs == 0 || c.err != nil {
		return false
	}
	if room, err := c.out.room(); err != nil || room < c.needs || c.behind() {
		if err != nil {
			c.fail(err)
		}
		return err != nil
	}
	c.needs = 0
	if len(c.rest) > 0 {
		c.goOn()
	}
	return true
}

// behind reports that as much waits for the peer where it lies as may.
func (c *conn) behind() bool {
	c.refs.passed(c.out.other.Load())
	return c.refs.full()
}

// oldest is the number of the first frame whose payload is not the peer's yet; 0: there
// is none.
func (c *conn) oldest() uint64 {
	c.refs.passed(c.out.other.Load())
	if n := c.refs.oldest(); n != 0 {
		return n
	}
	if len(c.rest) == 0 {
		return 0
	}
	return c.seq
}

// tell publishes what is written, and wakes a peer that sleeps.
func (c *conn) tell() {
	if c.out.told == c.out.at {
		return
	}
	c.l.stats.BytesOut += c.out.at - c.out.told
	c.out.tell()
	if take(c.out.sleep) {
		c.wake()
	}
}
