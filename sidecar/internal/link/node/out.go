package node

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

const (
	chunkBytes = 16 << 10 // bytes of a large payload that are published at once: the peer reads them while more are written
	partMin    = 16 << 10 // room at which a large frame that does not fit is begun: smaller parts cost more in publishing than they gain
)

// send writes a frame, or the beginning of a large one. It returns false if there is no
// room.
func (c *conn) send(f *link.Frame) bool {
	if len(c.rest) > 0 && !c.resumeWrite() || c.err != nil {
		return false
	}
	room, err := c.out.room()
	if err != nil {
		c.fail(err)
		return false
	}
	n := int(f.Head.Length)
	if off, ok := c.shareable(f); ok {
		if room < wire.HeaderBytes+refBytes || c.refsFull() {
			c.needs = wire.HeaderBytes + refBytes
			return false
		}
		c.needs = 0
		c.writeRef(f, off)
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

// write writes as much of the rest as fits into room.
func (c *conn) write(room int) {
	room &^= frameAlign - 1 // so that there is room for the padding, too
	for len(c.rest) > 0 && room > 0 {
		n := min(len(c.rest), room, chunkBytes)
		c.out.put(c.rest[:n])
		room -= n
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil
			c.out.pad()
		}
		if n == chunkBytes {
			c.publishOut()
		}
	}
	if len(c.rest) > 0 {
		c.needs = c.part(len(c.rest))
	}
}

// part returns the room at which c goes on with n bytes of a payload.
func (c *conn) part(n int) int { return min(partMin, len(c.out.mem)/2, aligned(n)) }

// resumeWrite writes more of a frame that did not fit, and reports whether all of it is
// written.
func (c *conn) resumeWrite() bool {
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
	c.publishOut()
	return len(c.rest) == 0
}

// retryBlocked continues a write that waited for room, and reports whether there is room.
func (c *conn) retryBlocked() bool {
	if c.needs == 0 || c.err != nil {
		return false
	}
	if room, err := c.out.room(); err != nil || room < c.needs || c.refsFull() {
		if err != nil {
			c.fail(err)
		}
		return err != nil
	}
	c.needs = 0
	if len(c.rest) > 0 {
		c.resumeWrite()
	}
	return true
}

// refsFull reports whether the payloads sent by reference that the peer has not read
// reach their bound.
func (c *conn) refsFull() bool {
	c.refs.release(c.out.other.Load())
	return c.refs.full()
}

// oldest returns the number of the first frame whose payload the peer does not have
// completely, or 0 if there is none.
func (c *conn) oldest() uint64 {
	c.refs.release(c.out.other.Load())
	if n := c.refs.oldest(); n != 0 {
		return n
	}
	if len(c.rest) == 0 {
		return 0
	}
	return c.seq
}

// publishOut publishes the bytes written, and wakes a peer that sleeps.
func (c *conn) publishOut() {
	if c.out.published == c.out.at {
		return
	}
	c.l.stats.BytesOut += c.out.at - c.out.published
	c.out.commit()
	if clearFlag(c.out.sleep) {
		c.wake()
	}
}
