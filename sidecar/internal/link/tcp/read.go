package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// incoming is what one connection has read and not yet handed over.
type incoming struct {
	buf   []byte
	start int    // first byte not handed over
	end   int    // first byte not read
	dst   []byte // rest of a payload that is being read in place
	pad   int    // zeros still to come after the last payload
	head  wire.Header
	vec   [2]iovec
}

func broken(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", link.ErrBroken, doing, err)
}

var errEnd = errors.New("closed by the peer")

// read takes what the socket has, a bounded part of it, and hands over whole
// frames.
func (c *conn) read(sink link.Sink) int {
	in, budget, work := &c.in, pollBudget, 0
	for budget > 0 && c.err == nil && c.fd >= 0 {
		n, again, err := c.fill()
		c.link.stats.Reads++
		switch {
		case err != nil:
			c.err = broken("reading", err)
			return work + 1
		case again:
			c.link.stats.EmptyReads++
			return work
		case n == 0:
			c.err = broken("reading", errEnd)
			return work + 1
		}
		c.link.stats.BytesIn += uint64(n)
		room := len(in.dst) + len(in.buf) - in.end
		work++
		budget -= n
		c.take(n, sink)
		if n < room {
			return work // the socket is empty: another read would only say so
		}
	}
	return work
}

// fill reads into the payload that is under way, and what follows it into the
// buffer, in one system call.
func (c *conn) fill() (n int, again bool, err error) {
	in := &c.in
	if len(in.dst) == 0 {
		return read(c.fd, in.buf[in.end:])
	}
	in.vec[0], in.vec[1] = vector(in.dst), vector(in.buf[in.end:])
	return readv(c.fd, in.vec[:])
}

// take accounts for n bytes read.
func (c *conn) take(n int, sink link.Sink) {
	in := &c.in
	if d := len(in.dst); d > 0 {
		k := min(n, d)
		in.dst = in.dst[k:]
		n -= k
		if len(in.dst) > 0 {
			return
		}
		in.dst = nil
		if err := sink.Placed(c.peer); err != nil {
			c.err = protocol(err)
			return
		}
	}
	in.end += n
	for c.err == nil && c.fd >= 0 && c.frame(sink) {
	}
	in.compact()
}

// compact keeps room for the largest frame that is read through the buffer.
func (in *incoming) compact() {
	if in.start == in.end {
		in.start, in.end = 0, 0
	} else if len(in.buf)-in.end < wire.HeaderBytes+directMin {
		in.end = copy(in.buf, in.buf[in.start:in.end])
		in.start = 0
	}
}

// frame hands over the next frame, or starts reading its payload in place; it
// reports false when more bytes are needed first.
func (c *conn) frame(sink link.Sink) bool {
	in := &c.in
	zeros := min(in.pad, in.end-in.start)
	in.start += zeros
	in.pad -= zeros
	have := in.end - in.start
	if have < wire.HeaderBytes {
		return false
	}
	h := &in.head
	if err := h.Decode((*[wire.HeaderBytes]byte)(in.buf[in.start:])); err != nil {
		c.err = protocol(err)
		return false
	}
	size := int(h.Length)
	body := in.start + wire.HeaderBytes
	if have >= wire.HeaderBytes+size {
		in.start, in.pad = body+size, wire.Padding(h.Length)
		if err := sink.Deliver(c.peer, h, in.buf[body:in.start]); err != nil {
			c.err = protocol(err)
			return false
		}
		return true
	}
	if size <= directMin {
		return false
	}
	dst, err := sink.Place(c.peer, h)
	if err != nil {
		c.err = protocol(err)
		return false
	}
	n := copy(dst, in.buf[body:in.end])
	in.dst, in.pad = dst[n:], wire.Padding(h.Length)
	in.start, in.end = 0, 0
	return false
}

func protocol(err error) error {
	if errors.Is(err, link.ErrProtocol) {
		return err
	}
	return fmt.Errorf("%w: %w", link.ErrProtocol, err)
}

// retry reports errors that mean nothing but "later".
func retry(e unix.Errno) bool { return e == unix.EAGAIN || e == unix.EINTR }
