// Package tcp is the link over stream sockets. Small frames are gathered into one buffer
// and large payloads are written straight from their memory; in the other direction large
// payloads are read straight into the memory that the core names.
//
// The link is given connected sockets (Attach): package peers makes and authenticates
// them. All system calls are raw calls that never block. The engine polls the link; the
// node link contains one for peers on other machines.
package tcp

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence/sockets"
)

// Limits of a connection, and of a Poll.
const (
	coalesceMax = 1024      // payloads up to this size are copied behind their header: the copy costs less than another piece of writev
	streamBytes = 128 << 10 // output buffer for headers and coalesced payloads: all frames of a turn of small messages
	farStream   = 32 << 10  // the same in a job of many pods (far.go)
	readBytes   = 256 << 10 // input buffer: what one read may return, at least restMax
	directMin   = 4 << 10   // a larger payload that has not arrived completely is read straight to its destination
	vectorMax   = 256       // pieces of one writev
	aheadMax    = 128 << 10 // bytes of large payloads that wait for the socket, because later frames wait behind them
	pollBudget  = 256 << 10 // bytes read from one connection in one Poll
	pollTotal   = 512 << 10 // bytes read from all connections: with hundreds of busy peers a turn would otherwise take tens of milliseconds
	directConns = 8         // up to this number of connections in use, reading each is cheaper than epoll_wait
	eagerMax    = 64 << 10  // larger messages gain more from a rendezvous, which saves a copy, than they lose by its round trip

	spareBuffers = 16 // buffers of each kind that are retained for the next connection that needs one
)

// Stats counts the work of a link.
type Stats struct {
	BytesIn, BytesOut, Reads, Writes, EmptyReads, ShortWrites uint64

	Looks uint64 // calls of epoll_wait
}

// Link is the tcp link of one sidecar. It is owned by the engine's goroutine.
//
// Its buffers belong to the link and not to the connections: a connection has one for
// output only while the socket accepts no more, and one for input only while a frame is
// incomplete. A thousand quiet connections cost no more than a few.
type Link struct {
	memory  link.Memory
	conns   []*conn // connections by peer; nil: no connection
	list    []*conn
	inUse   []*conn // the part of list that carried something lately
	silence sockets.Clock
	epoll   int
	waiting int  // number of connections whose output waits for the socket
	broken  bool // some connection has an error that Poll has not reported
	events  [64]unix.EpollEvent
	ready   []unix.EpollEvent // the part of events that the last Poll left for the next one
	turn    int               // index in inUse of the connection in turn, when all are read
	input   []byte            // buffer of a read
	vec     [vectorMax]iovec
	wide    []*conn     // connections with large buffers (far.go)
	outputs []*outgoing // free output buffers
	rests   [][]byte    // free buffers of incomplete frames
	stats   Stats
}

// New returns a link for a job of peers sidecars.
func New(memory link.Memory, peers int) (*Link, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tcp: epoll: %w", err)
	}
	return &Link{memory: memory, conns: make([]*conn, peers), epoll: ep, input: make([]byte, readBytes)}, nil
}

// SetMemory replaces the memory given to New, for a caller that implements Memory itself
// and exists only after New.
func (l *Link) SetMemory(m link.Memory) { l.memory = m }

// Caps returns what the link can do: carry frames.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "tcp", GatherMax: 1, EagerMax: eagerMax}
}

// Abilities returns the abilities of sockets.
func (l *Link) Abilities() link.Abilities {
	return link.Abilities{Attach: l.Attach, Break: l.Break, FD: l.FD, Arm: l.Arm, Bytes: l.Bytes}
}

// Stats returns the counters.
func (l *Link) Stats() Stats { return l.stats }

// Bytes returns the bytes read and written so far.
func (l *Link) Bytes() (in, out uint64) { return l.stats.BytesIn, l.stats.BytesOut }

// FD returns a descriptor that is readable when Poll would find work.
func (l *Link) FD() int { return l.epoll }

// Arm makes the Poll that follows a sleep look at all connections.
func (l *Link) Arm() bool {
	l.silence.LookNow()
	return len(l.ready) > 0
}

// Attach takes ownership of the connected stream socket fd. An older connection of the
// same peer is closed with its incomplete frames: the core resumes.
func (l *Link) Attach(peer link.Peer, fd int) error {
	l.Forget(peer)
	if err := unix.SetNonblock(fd, true); err != nil {
		return errors.Join(fmt.Errorf("tcp: %w", err), unix.Close(fd))
	}
	c := &conn{link: l, peer: peer, fd: fd, widenAt: math.MaxInt}
	c.tune()
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(peer)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return errors.Join(fmt.Errorf("tcp: watching connection to %d: %w", peer, err), unix.Close(fd))
	}
	l.conns[peer] = c
	l.list = append(l.list, c)
	c.use()
	return nil
}

// Forget closes the connection to peer.
func (l *Link) Forget(peer link.Peer) {
	c := l.conns[peer]
	if c == nil {
		return
	}
	l.conns[peer] = nil
	c.dropOutput()
	c.retainRest(nil)
	if c.waiting {
		c.waiting = false
		l.waiting--
	}
	isC := func(x *conn) bool { return x == c }
	l.list, l.inUse, l.wide = slices.DeleteFunc(l.list, isC), slices.DeleteFunc(l.inUse, isC), slices.DeleteFunc(l.wide, isC)
	_ = unix.Close(c.fd) // an error changes nothing: the descriptor is closed in any case
	c.fd = -1
}

// Break ends the connection to peer as a failing network would: both sides notice at
// their next read.
func (l *Link) Break(peer link.Peer) {
	if int(peer) < len(l.conns) && peer >= 0 && l.conns[peer] != nil {
		_ = unix.Shutdown(l.conns[peer].fd, unix.SHUT_RDWR) // an error means that it is broken already
	}
}

// Close ends all connections.
func (l *Link) Close() error {
	for p := range l.conns {
		l.Forget(link.Peer(p))
	}
	return unix.Close(l.epoll)
}

// Post accepts frames and writes as much as the socket accepts. Poll reports the errors.
func (l *Link) Post(peer link.Peer, frames []*link.Frame) int {
	c := l.conns[peer]
	if c == nil || c.err != nil {
		return 0
	}
	if c.out == nil {
		c.out = l.newOutput()
	}
	c.use() // an answer is probable
	n := 0
	for _, f := range frames {
		if !c.out.add(f, l.memory) {
			break
		}
		n++
	}
	if !c.waiting { // otherwise epoll reports when it accepts more
		c.flush()
	}
	return n
}

// Poll writes output that waited, where the socket has room again, and reads frames.
// While output waits, Poll asks epoll instead of each socket, so that a peer that does
// not read costs no attempts to write. A silent connection costs a share of one call of epoll
// every silence.LookInterval.
func (l *Link) Poll(sink link.Sink) int {
	if len(l.list)+l.waiting == 0 && !l.broken {
		return 0
	}
	if l.silence.IsOver() {
		l.retire()
	}
	work, enough := 0, l.stats.BytesIn+pollTotal
	direct := len(l.inUse) <= directConns && l.waiting == 0
	// Silent connections come first: those in use may always have more than enough.
	if !direct || len(l.ready) > 0 || len(l.inUse) < len(l.list) && l.silence.MayLook() {
		work = l.pollReady(sink, enough)
	}
	if direct && len(l.inUse) > 0 {
		work += l.pollInUse(sink, enough)
	}
	if l.broken {
		work += l.reportBroken(sink)
	}
	l.silence.Moved(l.stats.BytesIn + pollTotal - enough)
	return work
}

// retire ends the use of the connections that carried nothing since its last call.
func (l *Link) retire() {
	l.inUse = slices.DeleteFunc(l.inUse, func(c *conn) bool {
		c.inUse, c.used = c.used, false
		return !c.inUse
	})
}

// pollInUse reads one connection in use after the other, beginning with the one in turn, until
// BytesIn is enough.
func (l *Link) pollInUse(sink link.Sink, enough uint64) (work int) {
	for range len(l.inUse) { // inUse may change during the loop
		if len(l.inUse) == 0 || l.stats.BytesIn >= enough {
			break
		}
		l.turn %= len(l.inUse)
		c := l.inUse[l.turn]
		work += c.read(sink)
		if c.fd >= 0 {
			l.turn++
		}
	}
	return work
}

// pollReady reads the connections that epoll reports. It calls epoll_wait again only when
// all of them have had their turn, because epoll would report the same ones first.
func (l *Link) pollReady(sink link.Sink, enough uint64) (work int) {
	if len(l.ready) == 0 {
		l.stats.Looks++
		l.ready = sockets.Events(l.epoll, l.events[:])
	}
	for ; len(l.ready) > 0; l.ready = l.ready[1:] {
		if l.stats.BytesIn >= enough {
			return work + 1
		}
		ev := l.ready[0]
		c := l.conns[ev.Fd]
		if c == nil {
			continue
		}
		if ev.Events&unix.EPOLLOUT != 0 {
			c.flush()
			work++
		}
		if ev.Events&^unix.EPOLLOUT != 0 {
			work += c.read(sink)
		}
	}
	return work
}

// reportBroken ends the connections that have an error.
func (l *Link) reportBroken(sink link.Sink) int {
	l.broken = false
	work := 0
	for i := 0; i < len(l.list); i++ {
		if c := l.list[i]; c.err != nil {
			err, peer := c.err, c.peer
			l.Forget(peer)
			sink.Down(peer, err)
			work++
			i = -1 // Down may have changed the list
		}
	}
	return work
}

// conn is the connection to one peer.
type conn struct {
	link    *Link
	peer    link.Peer
	fd      int
	out     *outgoing // nil: there is nothing to write
	in      incoming
	err     error
	waiting bool // EPOLLOUT is armed
	inUse   bool // it is in the list inUse of the link
	used    bool // something was read or posted since the last retire
	moved   int  // bytes read and written since the connection was last narrowed, or could not be widened
	widenAt int  // moved at which it is widened
}

// use notes that the connection carries something: each Poll reads it until it is silent.
func (c *conn) use() {
	c.used = true
	if !c.inUse {
		c.inUse = true
		c.link.inUse = append(c.link.inUse, c)
	}
}

func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
		c.link.broken = true
	}
}

// arm makes epoll report writability while output waits, and only then.
func (c *conn) arm(on bool) {
	if c.waiting == on {
		return
	}
	c.waiting = on
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.peer)}
	if on {
		c.link.waiting++
		ev.Events |= unix.EPOLLOUT
	} else {
		c.link.waiting--
	}
	if err := unix.EpollCtl(c.link.epoll, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
		c.fail(fmt.Errorf("%w: epoll: %w", link.ErrBroken, err))
	}
}
