package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// incoming is the data that one connection has read and not yet handed over. During a
// read it is in the link's buffer; between two reads it is in a buffer of its own.
type incoming struct {
	rest  []byte // beginning of an incomplete frame; empty: none
	start int    // first byte of the link's buffer that is not handed over
	end   int    // first byte of the link's buffer that is not read
	dst   []byte // rest of the destination of a payload that is being read
	pad   int    // padding that follows the last payload
	head  wire.Header
	vec   [2]iovec
}

// restMax is the longest beginning of a frame that waits for the rest: a longer payload
// is read straight to its destination once its header has arrived.
const restMax = wire.HeaderBytes + directMin

// retainRest saves the beginning of a frame until the next read; an empty one releases
// the buffer.
func (c *conn) retainRest(start []byte) {
	in, l := &c.in, c.link
	if len(start) == 0 {
		if in.rest != nil && len(l.rests) < spareBuffers {
			l.rests = append(l.rests, in.rest[:0])
		}
		in.rest = nil
		return
	}
	if in.rest == nil {
		if n := len(l.rests); n > 0 {
			in.rest, l.rests = l.rests[n-1], l.rests[:n-1]
		} else {
			in.rest = make([]byte, 0, restMax)
		}
	}
	in.rest = append(in.rest[:0], start...)
}

func broken(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", link.ErrBroken, doing, err)
}

var errEnd = errors.New("closed by the peer")

// read reads what the socket has, up to pollBudget bytes, and hands over whole frames.
func (c *conn) read(sink link.Sink) (work int) {
	if c.err != nil || c.fd < 0 {
		return 0
	}
	in, l := &c.in, c.link
	in.start, in.end = 0, copy(l.input, in.rest)
	for budget := pollBudget; budget > 0 && c.err == nil && c.fd >= 0; {
		n, again, err := c.fill()
		l.stats.Reads++
		switch {
		case err != nil:
			c.fail(broken("reading", err))
		case again:
			l.stats.EmptyReads++
		case n == 0:
			c.fail(broken("reading", errEnd))
		}
		if n <= 0 || again || err != nil {
			break
		}
		l.stats.BytesIn += uint64(n)
		c.count(n)
		c.use()
		room := len(in.dst) + len(l.input) - in.end
		work++
		budget -= n
		c.received(n, sink)
		if n < room {
			break // the socket is empty: another read would return EAGAIN
		}
	}
	if c.fd >= 0 && c.err == nil { // otherwise Forget has released everything
		c.retainRest(l.input[in.start:in.end])
	}
	return work
}

// fill reads into the destination of the payload in flight, and the bytes that follow it
// into the buffer, in one system call.
func (c *conn) fill() (n int, again bool, err error) {
	in, room := &c.in, c.link.input[c.in.end:]
	if len(in.dst) == 0 {
		return read(c.fd, room)
	}
	in.vec[0], in.vec[1] = vector(in.dst), vector(room)
	return readv(c.fd, in.vec[:])
}

// received processes n bytes read.
func (c *conn) received(n int, sink link.Sink) {
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
			c.fail(link.Protocol(err))
			return
		}
	}
	in.end += n
	for c.err == nil && c.fd >= 0 && c.frame(sink) {
	}
	in.compact(c.link.input)
}

// compact makes room for the largest frame that is read through the buffer.
func (in *incoming) compact(buf []byte) {
	if in.start == in.end {
		in.start, in.end = 0, 0
	} else if len(buf)-in.end < restMax {
		in.end = copy(buf, buf[in.start:in.end])
		in.start = 0
	}
}

// frame hands over the next frame, or begins to read its payload to its destination. It
// returns false if more bytes are needed first.
func (c *conn) frame(sink link.Sink) bool {
	in, buf := &c.in, c.link.input
	zeros := min(in.pad, in.end-in.start)
	in.start += zeros
	in.pad -= zeros
	have := in.end - in.start
	if have < wire.HeaderBytes {
		return false
	}
	h := &in.head
	if err := h.Decode((*[wire.HeaderBytes]byte)(buf[in.start:])); err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	if err := link.CheckAck(h.Ack, c.oldest()); err != nil {
		c.fail(err)
		return false
	}
	size := int(h.Length)
	body := in.start + wire.HeaderBytes
	if have >= wire.HeaderBytes+size {
		in.start, in.pad = body+size, wire.Padding(h.Length)
		if err := sink.Deliver(c.peer, h, buf[body:in.start]); err != nil {
			c.fail(link.Protocol(err))
			return false
		}
		return true
	}
	if size <= directMin {
		return false
	}
	dst, err := sink.Place(c.peer, h)
	if err != nil {
		c.fail(link.Protocol(err))
		return false
	}
	n := copy(dst, buf[body:in.end])
	in.dst, in.pad = dst[n:], wire.Padding(h.Length)
	in.start, in.end = 0, 0
	return false
}

// retry reports whether e means only that the call should be repeated later.
func retry(e unix.Errno) bool { return e == unix.EAGAIN || e == unix.EINTR }
