package ether

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// conn is a connection to one peer. It exists from Prepare on, so that packets that come
// before Join are kept.
type conn struct {
	l       *Link
	peer    link.Peer
	session uint32 // in packets to this side
	remote  uint32 // in packets to the peer
	to      address
	tx, rx  *sealer
	replay  replay
	bodyMax int // of a packet's body

	snd   sender
	rcv   receiver
	pulls puller
	asks  bool // in l.askers
	pipe  pipe
	head  wire.Header // of the payload that is being read

	err    error
	joined bool
	ending int64  // not 0: it is forgotten, and ends when all is acknowledged, or at this time; or it is gone, and the peer is told until this time
	gone   bool   // its descriptors are closed
	dirty  bool   // in l.dirty
	timed  bool   // in l.timed
	events uint32 // of the socket, as epoll knows them
	watch  bool   // in l.watched
	reads  bool   // in l.readers
}

// viaSocket is set in the byte of a header that has the element type, if the payload is in
// the socket. The bit belongs to the link (P§3).
const viaSocket = 1

// fail makes Poll report the end of the connection.
func (c *conn) fail(err error) {
	if c.ending != 0 {
		c.ending = 1 // its peer is gone as well
		return
	}
	if c.err == nil {
		c.err = err
		if c.joined { // otherwise Join counts it
			c.l.failed++
		}
	}
}

// lives reports whether frames are handed over.
func (c *conn) lives() bool { return !c.gone && c.err == nil && c.ending == 0 }

// send adds a frame to the packets. It returns false if there is no room.
func (c *conn) send(f *link.Frame) bool {
	n := int(f.Head.Length)
	small := wire.HeaderBytes+n <= c.bodyMax-prefixBytes
	size := wire.HeaderBytes
	if small {
		size += n
	} else if c.pipe.full() {
		return false
	}
	p := c.snd.open(size, c.bodyMax, &c.l.bodies)
	if p == nil {
		return false
	}
	at := len(p.body)
	p.body = p.body[:at+size]
	f.Head.Encode((*[wire.HeaderBytes]byte)(p.body[at:]))
	payload := f.Inline[:min(n, link.InlineMax)]
	if f.Payload.Region != 0 && n > 0 {
		payload = c.l.memory.Bytes(f.Payload)[:n]
	}
	if small {
		copy(p.body[at+wire.HeaderBytes:], payload)
	} else {
		p.body[at+3] |= viaSocket
		c.pipe.add(payload, f.Head.Seq)
	}
	return true
}

// packet handles a packet that has authenticated.
func (c *conn) packet(kind byte, body []byte, sink link.Sink) {
	if c.err != nil {
		return
	}
	if len(body) < prefixBytes {
		c.fail(fmt.Errorf("%w: a packet of kind %d has a body of %d bytes, want at least %d", link.ErrProtocol, kind, len(body), prefixBytes))
		return
	}
	le := binary.LittleEndian
	c.pulls.peerMax = le.Uint32(body[20:])
	if kind == kindAck && le.Uint32(body) != 0 { // the peer waits for a larger limit
		c.rcv.hurry = true
	}
	if !c.snd.acknowledged(le.Uint32(body[4:]), le.Uint64(body[8:]), le.Uint32(body[16:]), c.l.now, &c.l.bodies) {
		c.fail(fmt.Errorf("%w: acknowledges a packet that was not sent", link.ErrProtocol))
		return
	}
	if kind == kindStream {
		c.stream(widen(c.rcv.next, le.Uint32(body)), body, sink)
	}
	if c.joined {
		c.touch()
	}
}

// stream handles a packet with frames: it hands them over if all earlier ones are, and
// otherwise keeps a copy.
func (c *conn) stream(number uint64, body []byte, sink link.Sink) {
	if !c.rcv.accept(number, c.l.now) {
		c.l.stats.Repeated++
		return
	}
	if number != c.rcv.next || !c.joined || c.ending != 0 {
		c.keep(number, body, prefixBytes)
		if c.ending != 0 {
			c.discard()
		}
		return
	}
	off := c.frames(body, prefixBytes, sink)
	switch {
	case !c.lives():
		return
	case off < len(body):
		c.keep(number, body, off)
		return
	}
	c.rcv.drop(&c.l.bodies)
	c.rcv.advance()
	c.resume(sink)
}

// keep copies a packet until its turn; the frames before off are handed over. A packet for
// which there is no memory is dropped, as the network might, and comes again.
func (c *conn) keep(number uint64, body []byte, off int) {
	free := &c.l.bodies
	if off == prefixBytes && (free.in.full() || c.rcv.kept+len(body) > bytesMax+bodyMost) {
		return
	}
	c.rcv.keep(number, append(free.in.get(len(body)), body...), free)
	if number == c.rcv.next {
		c.rcv.off = off
	}
	c.rcv.advance()
}

// discard drops what a forgotten connection receives. The peer gets its acknowledgements.
func (c *conn) discard() {
	for c.rcv.at(c.rcv.next) != nil {
		c.rcv.drop(&c.l.bodies)
	}
	c.rcv.advance()
}

// resume hands over the packets that wait, as far as nothing is missing.
func (c *conn) resume(sink link.Sink) (work int) {
	for c.lives() && c.pipe.dst == nil {
		r := &c.rcv
		body := r.at(r.next)
		if body == nil {
			return work
		}
		off := c.frames(body, max(r.off, prefixBytes), sink)
		work++
		if !c.lives() {
			return work
		}
		if off < len(body) {
			r.off = off
			return work
		}
		r.drop(&c.l.bodies)
		r.advance()
	}
	return work
}

// frames hands over the frames of a body from off on, and returns the offset of the first
// one that has to wait for a payload.
func (c *conn) frames(body []byte, off int, sink link.Sink) int {
	for off < len(body) && c.lives() && c.pipe.dst == nil {
		if len(body)-off < wire.HeaderBytes {
			c.fail(fmt.Errorf("%w: a packet ends in a header", link.ErrProtocol))
			break
		}
		raw := (*[wire.HeaderBytes]byte)(body[off:])
		bySocket := raw[3]&viaSocket != 0
		raw[3] &^= viaSocket // so that the header is valid, and a kept one is not read twice: off passes it
		h := &c.head
		if err := h.Decode(raw); err != nil {
			c.fail(link.Protocol(err))
			break
		}
		if err := link.CheckAck(h.Ack, c.pipe.oldest()); err != nil {
			c.fail(err)
			break
		}
		off += wire.HeaderBytes
		if bySocket {
			c.place(h, sink)
			continue
		}
		if int(h.Length) > len(body)-off {
			c.fail(fmt.Errorf("%w: a packet ends in a payload", link.ErrProtocol))
			break
		}
		end := off + int(h.Length)
		if err := sink.Deliver(c.peer, h, body[off:end]); err != nil {
			c.fail(link.Protocol(err))
			break
		}
		off = end
	}
	return off
}

// place begins to read a payload from the socket.
func (c *conn) place(h *wire.Header, sink link.Sink) {
	if h.Length == 0 {
		c.fail(fmt.Errorf("%w: a frame without a payload has one in the socket", link.ErrProtocol))
		return
	}
	dst, err := sink.Place(c.peer, h)
	if err != nil {
		c.fail(link.Protocol(err))
		return
	}
	if !c.lives() { // the core has forgotten the peer meanwhile
		return
	}
	c.pipe.dst = dst[:h.Length]
	c.l.stats.Placed++
	c.readPayload(sink)
}

// readPayload reads the payload whose turn it is.
func (c *conn) readPayload(sink link.Sink) (work int) {
	whole, work, err := c.pipe.fill(&c.l.budget)
	if err != nil {
		c.fail(err)
		return work + 1
	}
	if !whole {
		c.l.reading(c)
		c.changed()
		return work
	}
	if err := sink.Placed(c.peer); err != nil {
		c.fail(link.Protocol(err))
	}
	return work + 1
}

// changed notes that other events of the socket may be awaited.
func (c *conn) changed() {
	if !c.watch {
		c.watch = true
		c.l.watched = append(c.l.watched, c)
	}
}

// time makes sure that the connection's timers are looked after.
func (c *conn) time() {
	if !c.timed {
		c.timed = true
		c.l.timed = append(c.l.timed, c)
	}
}

// touch makes sure that the connection's packets and timers are looked after.
func (c *conn) touch() {
	if c.gone {
		return
	}
	c.mark()
	c.time()
}

// deadline returns when the connection has to send next by its timers; 0: never.
func (c *conn) deadline() int64 {
	at := c.snd.timeout()
	if late := c.pullDeadline(); late != 0 && (at == 0 || late < at) {
		at = late
	}
	if due := c.rcv.due(); due != 0 && c.joined && (at == 0 || due < at) {
		at = due
	}
	if c.ending != 0 && (at == 0 || c.ending < at) {
		at = c.ending
	}
	return at
}

// close closes the descriptors and releases the buffers.
func (c *conn) close() {
	c.gone = true
	free := &c.l.bodies
	c.snd.drop(free)
	for ; c.rcv.count > 0; c.rcv.drop(free) {
	}
	if c.pipe.fd >= 0 {
		_ = unix.Close(c.pipe.fd) // an error changes nothing: the descriptor is closed in any case
		c.pipe.fd = -1
	}
}
