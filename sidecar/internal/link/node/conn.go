package node

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/turns"
)

const (
	wholeMax = 4 << 10  // payloads up to this size are handed over whole; larger ones are read straight to where they go
	step     = 16 << 10 // bytes of a large payload that the peer hears of at once: it reads them while more are written
	partMin  = 16 << 10 // room for which a large frame begins that does not fit
)

// conn is the connection to one peer.
type conn struct {
	l     *Link
	peer  link.Peer
	fd    int // proven socket
	local int // for words
	seg   []byte
	out   way
	in    way

	rest  []byte // of a frame that is half written: it did not fit
	seq   uint64 // of that
	needs int    // room that the next frame needs; 0: none waits
	refs  refs

	dst    []byte      // rest of a payload that is being read to where it goes
	src    []byte      // of that, where it lies; nil: it comes through the ring
	source link.Region // of src
	moved  uint64      // bytes of such payloads
	left   int         // bytes of a frame that is not all here
	raw    [wire.HeaderBytes]byte
	head   wire.Header

	board   []byte                 // the peer's
	regions map[link.Region][]byte // of the peer
	rung    int                    // so often words have come that are not read
	unheard bool                   // more of them are here than were read
	heard   uint64                 // of its words that do more than wake
	words   []word24               // that the local socket has not taken
	ending  error                  // why the peer will write no more; what it has written comes first
	last    uint64                 // of that, where it ends
	err     error
	gone    bool
}

// fail ends c with err at the next Poll.
func (c *conn) fail(err error) {
	if c.err == nil && !c.gone {
		c.err = err
		c.l.failed++
	}
}

// end says that the peer writes no more. What is in the ring is still handed over.
func (c *conn) end(cause error) {
	if c.ending == nil {
		n, _ := c.in.ready() // what is wrong with it the next read finds
		c.ending, c.last = cause, c.in.at+uint64(n)
	}
}

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
		if len(c.src) == 0 && n == c.left || !c.frame(n, sink) {
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
	if c.ending != nil && c.err == nil && len(c.src) == 0 && (c.in.at >= c.last || work == 0) {
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
	h, refers := &c.head, c.raw[refAt] == byRef
	if refers {
		c.raw[refAt] = 0
	}
	if err := h.Decode(&c.raw); err != nil {
		c.fail(protocol(err))
		return false
	}
	if err := link.Ahead(h.Ack, c.oldest()); err != nil {
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
			c.fail(protocol(err))
			return false
		}
		return true
	}
	dst, err := sink.Place(c.peer, h)
	if err != nil {
		c.fail(protocol(err))
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
		c.fail(protocol(err))
		return false
	}
	if !c.gone {
		c.src, c.dst = src, dst
	}
	return true
}

// more reads a payload on to where it goes.
func (c *conn) more(n int, sink link.Sink) bool {
	if c.src != nil {
		n = min(len(c.dst), turns.PieceMax)
		copy(c.dst[:n], c.src)
		c.src = c.src[n:]
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
	if c.dst = nil; c.src == nil {
		c.in.pad()
	}
	c.src = nil
	if err := sink.Placed(c.peer); err != nil {
		c.fail(protocol(err))
		return false
	}
	return true
}

// errSocket says that the sign of life has ended.
var errSocket = errors.New("closed by the peer")

// look looks at the proven socket, on which nothing is ever sent.
func (c *conn) look() int {
	var b [1]byte
	n, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return 0
	case err != nil:
		c.end(broken(err))
	case n > 0:
		c.fail(fmt.Errorf("%w: bytes on the socket of a connection by shared memory", link.ErrProtocol))
	default:
		c.end(broken(errSocket))
	}
	return 1
}

// close gives everything back. Whoever still uses the ring is a caller on the stack,
// which looks at gone first.
func (c *conn) close() {
	c.gone = true
	_ = unix.Close(c.fd) // nothing is expected of them any more
	_ = unix.Close(c.local)
	c.rest, c.dst, c.src, c.words = nil, nil, nil, nil
	for r := range c.regions {
		c.unmap(r)
	}
	c.l.giveBack(c.seg)
	c.l.giveBack(c.board)
}

func broken(err error) error { return fmt.Errorf("%w: %w", link.ErrBroken, err) }

func protocol(err error) error {
	if errors.Is(err, link.ErrProtocol) {
		return err
	}
	return fmt.Errorf("%w: %w", link.ErrProtocol, err)
}

// giveBack unmaps memory that nobody uses any more: pages of a large mapping take the
// kernel milliseconds, in which no rank would be heard.
func (l *Link) giveBack(mem []byte) {
	if mem == nil {
		return
	}
	l.unmapping.Go(func() {
		if err := segment.Unmap(mem); err != nil {
			l.cfg.Log.Warn("giving memory of a peer back", "cause", err)
		}
	})
}
