package dsa

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// feed gives slots to pieces, in the order of the copies, and writes descriptors into the buffer,
// until there is no slot, no room in the buffer or no copy, until a copy has to wait, or until enough
// memory was made resident.
func (c *Channel) feed() {
	for c.again != 0 && c.buffered < c.batch && c.mayTouch() {
		i := c.again.first()
		c.again.remove(i)
		if c.touch(&c.slots[i]) != nil {
			c.toProcessor(i)
			continue
		}
		c.describe(i)
	}
	for c.fed < c.submitted {
		t := c.at(c.fed)
		if t.after > c.copied || !c.continued(t) {
			return
		}
		c.fed++
		c.advance()
	}
}

// continued goes on with a copy. It reports whether the copy has descriptors for all of its bytes.
func (c *Channel) continued(t *transfer) bool {
	if !t.started {
		c.start(t)
	}
	if c.cause != nil && !t.processor {
		t.processor = true
		c.stats.Fallbacks++
	}
	if t.processor {
		return c.copyRest(t)
	}
	for t.next < t.end {
		if c.free == 0 || c.buffered == c.batch || !c.mayTouch() {
			return false
		}
		i, n := c.free.first(), min(t.end-t.next, c.piece)
		c.free.remove(i)
		pages := n/pageBytes + 2
		c.slots[i] = slot{copy: c.fed, off: t.next, n: n, faultsBudget: 2 * pages}
		t.next += n
		t.pieces++
		if c.readable.add(t.src[t.next-n:t.next]) != nil || c.writable.add(t.dst[t.next-n:t.next]) != nil {
			c.toProcessor(i)
			continue
		}
		c.describe(i)
	}
	t.next = len(t.src)
	return true
}

// start copies the ends of a copy that are no whole lines of the destination.
func (c *Channel) start(t *transfer) {
	t.started = true
	t.end = len(t.src)
	head := int(-addressOf(t.dst) & (lineBytes - 1))
	if c.cause != nil || len(t.src) < head+lineBytes || overlap(t.dst, t.src) {
		t.processor = c.cause == nil
		return
	}
	t.next, t.end = head, head+(len(t.src)-head)&^(lineBytes-1)
	c.copy(t, 0, head)
	c.copy(t, t.end, len(t.src)-t.end)
	if t.err != nil {
		t.next, t.end = len(t.src), len(t.src)
	}
}

// describe writes the descriptor of a slot into the buffer, which has room for it.
func (c *Channel) describe(i int) {
	s := &c.slots[i]
	t := c.at(s.copy)
	c.records.reset(i)
	dst, src := uint64(addressOf(t.dst[s.off:])), uint64(addressOf(t.src[s.off:]))
	encode(c.buffer[c.buffered*descriptorBytes:], dst, src, c.records.address(i), s.n)
	c.order[c.buffered] = uint8(i)
	c.buffered++
}

// flush writes the buffer. If the queue was full, it is not tried again before a descriptor of
// this channel has completed or none is in flight.
func (c *Channel) flush() {
	for c.buffered > 0 && c.cause == nil && (!c.full || c.flying == 0) {
		n, err := c.queue.Write(c.buffer[:c.buffered*descriptorBytes])
		c.stats.Writes++
		taken := max(n, 0) / descriptorBytes
		c.taken(taken)
		switch {
		case taken > 0:
			c.refusals, c.full = 0, false
		case err == nil || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			c.refused()
			return
		default:
			c.end(fmt.Errorf("write %d descriptors: %w", c.buffered, err))
			return
		}
	}
}

// taken moves the first n descriptors of the buffer into flight.
func (c *Channel) taken(n int) {
	for _, i := range c.order[:n] {
		c.flying.add(int(i))
	}
	left := copy(c.order[:], c.order[n:c.buffered])
	copy(c.buffer[:], c.buffer[n*descriptorBytes:c.buffered*descriptorBytes])
	c.buffered = left
	c.stats.Descriptors += uint64(n)
}

// refused notes that the queue is full. Other processes can keep a shared queue full for any
// time, so that copies do not wait for it without bound.
func (c *Channel) refused() {
	c.full = true
	c.stats.Refusals++
	if c.flying != 0 {
		return
	}
	if c.refusals++; c.refusals < refusalsMax {
		return
	}
	c.refusals = 0
	c.unbuffer()
}

// unbuffer leaves the pieces of the buffer to the processor.
func (c *Channel) unbuffer() {
	for _, i := range c.order[:c.buffered] {
		c.toProcessor(int(i))
	}
	c.buffered = 0
}
