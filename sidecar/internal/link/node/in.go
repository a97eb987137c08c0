package node

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// wholeMax is the largest payload that is handed over whole. A larger one is read
// straight to its destination.
const wholeMax = 4 << 10

// publishIn publishes the bytes read, and wakes a peer that waits for room.
func (c *conn) publishIn() {
	c.l.stats.BytesIn += c.in.at - c.in.published
	c.in.commit()
	if clearFlag(c.in.waits) {
		c.wake()
	}
}

// read hands over the frames that have arrived, at most budget bytes.
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
		if !c.src.pending() && n == c.left || !c.frame(n, sink) {
			c.left = n
			break
		}
		if c.gone {
			return work + 1
		}
		c.left = 0
		if c.in.at-c.in.published >= uint64(len(c.in.mem)/4) {
			c.publishIn()
		}
	}
	if c.gone {
		return work
	}
	c.publishIn()
	if c.end.cause != nil && c.err == nil && !c.src.pending() && (c.in.at >= c.end.at || work == 0) {
		c.fail(c.end.cause)
		work++
	}
	return work
}

// frame hands over the frame of which n bytes are here, or reads its payload as far as it
// is here. It returns false if more bytes are needed first.
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
		// Copy: the peer may write to the ring meanwhile, and each byte is read once.
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

// begin starts the copy of a payload from the location that the peer names.
func (c *conn) begin(n, size int, sink link.Sink) bool {
	if n < wire.HeaderBytes+refBytes {
		return false
	}
	c.in.at += wire.HeaderBytes
	src, err := c.resolveRef(size)
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

// more reads the next part of a payload to its destination.
func (c *conn) more(n int, sink link.Sink) bool {
	if c.src.pending() {
		n = min(len(c.dst), link.PieceMax)
		if err := c.src.of.read(c.dst[:n], c.src.at); err != nil {
			c.fail(link.Broken(err))
			return false
		}
		c.src.at += uint64(n)
		c.moved += uint64(n)
		c.l.stats.BytesIn += uint64(n)
	} else {
		if n = min(n, len(c.dst), chunkBytes); n == 0 {
			return false
		}
		c.in.get(c.dst[:n])
	}
	if c.dst = c.dst[n:]; len(c.dst) > 0 {
		return true
	}
	if c.dst = nil; !c.src.pending() {
		c.in.pad()
	}
	c.src = remoteSpan{}
	if err := sink.Placed(c.peer); err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	return true
}
