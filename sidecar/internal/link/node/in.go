package node

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// wholeMax: payloads up to this size are handed over whole; larger ones are read straight
// to where they go.
const wholeMax = 4 << 10

// give publishes what is read, and wakes a peer that waits for room.
func (c *conn) give() {
	c.l.stats.BytesIn += c.in.at - c.in.told
	c.in.tell()
	if take(c.in.waits) {
		c.wake()
	}
}

// read hands over what has come, budget bytes at most.
func (c *conn) read(sink link.Sink, budget uint64) (work int) {
	if c.err != nil {
		return 0
	}
	for begin := c.in.at + c.moved; c.err == nil && c.in.at+c.moved-begin < budget; work++ {
		n, err := c.in.ready()
		if err != nil {
			c.fail(err)
			break
		}
		if !c.src.waits() && n == c.left || !c.frame(n, sink) {
			c.left = n
			break
		}
		if c.gone {
			return work + 1
		}
		c.left = 0
		if c.in.at-c.in.told >= uint64(len(c.in.mem)/4) {
			c.give()
		}
	}
	if c.gone {
		return work
	}
	c.give()
	if c.ending != nil && c.err == nil && !c.src.waits() && (c.in.at >= c.last || work == 0) {
		c.fail(c.ending)
		work++
	}
	return work
}

// frame hands over the frame of which n bytes are here, or reads its payload as far as it
// is; it reports false when more bytes are needed first.
func (c *conn) frame(n int, sink link.Sink) bool {
	if len(c.dst) > 0 {
		return c.more(n, sink)
	}
	if n < wire.HeaderBytes {
		return false
	}
	c.in.peek(&c.raw)
	h, refers := &c.head, c.raw[refAt]&byRef != 0
	c.raw[refAt] &^= byRef
	if err := h.Decode(&c.raw); err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	if err := link.CheckAck(h.Ack, c.oldest()); err != nil {
		c.fail(err)
		return false
	}
	size := int(h.Length)
	if refers {
		return c.begin(n, size, sink)
	}
	if size <= wholeMax {
		if n < wire.HeaderBytes+size {
			return false
		}
		// A copy: what the peer writes there meanwhile is not read twice.
		c.in.at += wire.HeaderBytes
		c.in.get(c.l.input[:size])
		c.in.pad()
		if err := sink.Deliver(c.peer, h, c.l.input[:size]); err != nil {
			c.fail(link.Protocol(err))
			return false
		}
		return true
	}
	dst, err := sink.Place(c.peer, h)
	if err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	c.in.at += wire.HeaderBytes
	c.dst = dst
	return true
}

// begin begins to copy a payload from where the peer says that it lies.
func (c *conn) begin(n, size int, sink link.Sink) bool {
	if n < wire.HeaderBytes+refBytes {
		return false
	}
	c.in.at += wire.HeaderBytes
	src, err := c.referred(size)
	if err != nil {
		c.fail(err)
		return false
	}
	c.in.at += refBytes
	dst, err := sink.Place(c.peer, &c.head)
	if err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	if !c.gone {
		c.src, c.dst = src, dst
	}
	return true
}

// more reads a payload on to where it goes.
func (c *conn) more(n int, sink link.Sink) bool {
	if c.src.waits() {
		n = min(len(c.dst), link.PieceMax)
		if err := c.src.of.read(c.dst[:n], c.src.at); err != nil {
			c.fail(link.Broken(err))
			return false
		}
		c.src.at += uint64(n)
		c.moved += uint64(n)
		c.l.stats.BytesIn += uint64(n)
	} else {
		if n = min(n, len(c.dst), step); n == 0 {
			return false
		}
		c.in.get(c.dst[:n])
	}
	if c.dst = c.dst[n:]; len(c.dst) > 0 {
		return true
	}
	if c.dst = nil; !c.src.waits() {
		c.in.pad()
	}
	c.src = lying{}
	if err := sink.Placed(c.peer); err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	return true
}
