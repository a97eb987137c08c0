package tcp

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// outgoing is the output of one connection that is not written yet: pieces, in order, of
// the stream buffer (headers and small payloads) or of payloads in their memory.
type outgoing struct {
	stream []byte // never reallocated: pieces point into it
	used   int
	pieces []piece
	bytes  int // bytes of payloads in their memory that are not written
	first  int // index of the first piece that is not written
}

// piece is a range of bytes to write.
type piece struct {
	mem    []byte
	stream bool   // part of the stream buffer: the next frame may extend it
	seq    uint64 // number of the frame whose payload it is
}

// newOutput returns an empty output buffer, a free one if there is one.
func (l *Link) newOutput() *outgoing {
	if n := len(l.outputs); n > 0 {
		o := l.outputs[n-1]
		l.outputs = l.outputs[:n-1]
		return o
	}
	return &outgoing{stream: make([]byte, streamRoom(len(l.conns))), pieces: make([]piece, 0, vectorMax)}
}

// dropOutput releases the connection's output buffer, with its content. The link retains
// a few buffers, but not as many as it needed while many peers did not read.
func (c *conn) dropOutput() {
	if c.out != nil && len(c.link.outputs) < spareBuffers {
		clear(c.out.pieces)
		c.out.pieces, c.out.first, c.out.used, c.out.bytes = c.out.pieces[:0], 0, 0, 0
		c.link.outputs = append(c.link.outputs, c.out)
	}
	c.out = nil
}

// oldest returns the number of the first frame whose payload is in its memory and not
// written, or 0 if there is none.
func (c *conn) oldest() uint64 {
	if c.out == nil {
		return 0
	}
	for _, p := range c.out.pieces[c.out.first:] { // it is the first or the second piece
		if !p.stream {
			return p.seq
		}
	}
	return 0
}

func (o *outgoing) pending() bool { return o.first < len(o.pieces) }

// add queues a frame. It returns false if there is no room before the next flush.
func (o *outgoing) add(f *link.Frame, m link.Memory) bool {
	var payload []byte
	if f.Head.Length > 0 {
		if f.Payload.Region != 0 {
			payload = m.Bytes(f.Payload)
		} else {
			payload = f.Inline[:]
		}
		payload = payload[:f.Head.Length]
	}
	small := len(payload) <= coalesceMax
	pad := wire.Padding(f.Head.Length)
	need := wire.HeaderBytes + pad
	if small {
		need += len(payload)
	}
	if len(o.stream)-o.used < need || len(o.pieces)+3 > cap(o.pieces) || o.bytes >= aheadMax {
		return false
	}
	b := o.stream[o.used : o.used+need : o.used+need]
	f.Head.Encode((*[wire.HeaderBytes]byte)(b))
	clear(b[need-pad:])
	if small {
		copy(b[wire.HeaderBytes:], payload)
		o.extend(b)
		return true
	}
	o.extend(b[:wire.HeaderBytes])
	o.pieces = append(o.pieces, piece{mem: payload, seq: f.Head.Seq})
	o.bytes += len(payload)
	if pad > 0 {
		o.extend(b[wire.HeaderBytes:])
	}
	return true
}

// extend appends a part of the stream buffer, to the last piece if that ends where the
// part begins.
func (o *outgoing) extend(b []byte) {
	start := o.used
	o.used += len(b)
	if n := len(o.pieces); n > o.first && o.pieces[n-1].stream {
		last := &o.pieces[n-1]
		last.mem = o.stream[start-len(last.mem) : o.used]
		return
	}
	o.pieces = append(o.pieces, piece{mem: b, stream: true})
}

// written counts n bytes as written.
func (o *outgoing) written(n int) {
	for n > 0 {
		p := &o.pieces[o.first]
		if !p.stream {
			o.bytes -= min(n, len(p.mem))
		}
		if n < len(p.mem) {
			p.mem = p.mem[n:]
			return
		}
		n -= len(p.mem)
		*p = piece{}
		o.first++
	}
	if o.first == len(o.pieces) {
		o.pieces, o.first, o.used = o.pieces[:0], 0, 0
	}
}

// flush writes until the socket takes no more.
func (c *conn) flush() {
	for c.err == nil && c.out != nil && c.out.pending() {
		want := c.out.fill(&c.link.vec)
		n, again, err := writev(c.fd, c.link.vec[:want])
		c.link.stats.Writes++
		switch {
		case err != nil:
			c.fail(broken("writing", err))
			return
		case again:
			c.link.stats.ShortWrites++
			c.arm(true)
			return
		}
		c.link.stats.BytesOut += uint64(n)
		c.used = true
		c.count(n)
		c.out.written(n)
	}
	c.dropOutput()
	c.arm(false)
}
