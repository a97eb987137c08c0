// Package tcp is the link over stream sockets. Small frames are gathered into
// one buffer and large payloads are written straight from their memory; on the
// way in large payloads are read straight into the memory that the core names.
//
// The link is given connected sockets (Attach): making and authenticating them
// is the work of peers. System calls are raw ones that never block.
package tcp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Limits of a connection.
const (
	coalesceMax = 1024      // payloads up to this size are copied behind their header
	streamBytes = 128 << 10 // buffer for headers and coalesced payloads, out
	readBytes   = 256 << 10 // buffer for what arrives
	directMin   = 4 << 10   // a larger payload that is not all here is read in place
	vectorMax   = 256       // pieces of one writev
	aheadMax    = 128 << 10 // bytes of large payloads that wait for the socket: what comes next waits behind them
	pollBudget  = 256 << 10 // bytes read of one connection in one Poll
	pollTotal   = 512 << 10 // and of all: with hundreds of busy peers a turn would take tens of milliseconds
	directConns = 8         // up to so many connections are read without asking epoll
	eagerMax    = 64 << 10

	spareBuffers = 16 // of each kind, kept for the next connection that needs one
)

// Stats counts what the link did.
type Stats struct {
	BytesIn, BytesOut, Reads, Writes, EmptyReads, ShortWrites uint64
}

// Link is the tcp link of one sidecar. It is owned by the engine's goroutine.
//
// Its buffers are the link's and not the connections': a connection has one for
// output while the socket takes no more, and one for input while a frame is
// half here. A thousand quiet connections cost no more than a few.
type Link struct {
	memory  link.Memory
	conns   []*conn // by peer; nil: none
	list    []*conn
	epoll   int
	waiting int  // connections whose output is stuck
	broken  bool // some connection has an error that Poll has not told
	events  [64]unix.EpollEvent
	ready   []unix.EpollEvent // of events, those that the last Poll left for the next
	turn    int               // of list, whose turn it is when all are read
	input   []byte            // what a read brings
	vec     [vectorMax]iovec
	outputs []*outgoing // not in use
	rests   [][]byte    // not in use
	stats   Stats
}

// New makes a link for a job of peers sidecars.
func New(memory link.Memory, peers int) (*Link, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("tcp: epoll: %w", err)
	}
	return &Link{memory: memory, conns: make([]*conn, peers), epoll: ep, input: make([]byte, readBytes)}, nil
}

// SetMemory replaces the memory given to New, for a caller that is the memory
// itself and could not name it earlier.
func (l *Link) SetMemory(m link.Memory) { l.memory = m }

// Caps says what the link can do: carry frames.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "tcp", GatherMax: 1, EagerMax: eagerMax}
}

// Abilities are those of sockets.
func (l *Link) Abilities() link.Abilities {
	return link.Abilities{Attach: l.Attach, Break: l.Break, FD: l.FD, Bytes: l.Bytes}
}

// Stats returns the counters.
func (l *Link) Stats() Stats { return l.stats }

// Bytes returns what was read and written so far.
func (l *Link) Bytes() (in, out uint64) { return l.stats.BytesIn, l.stats.BytesOut }

// FD is readable when Poll would find work.
func (l *Link) FD() int { return l.epoll }

// Attach takes over the connected stream socket fd. An older connection of the
// same peer is closed, and what it had half way is forgotten: the core resumes.
func (l *Link) Attach(peer link.Peer, fd int) error {
	l.Forget(peer)
	if err := unix.SetNonblock(fd, true); err != nil {
		return errors.Join(fmt.Errorf("tcp: %w", err), unix.Close(fd))
	}
	l.tune(fd)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(peer)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return errors.Join(fmt.Errorf("tcp: watching connection to %d: %w", peer, err), unix.Close(fd))
	}
	c := &conn{link: l, peer: peer, fd: fd}
	l.conns[peer] = c
	l.list = append(l.list, c)
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
	c.keep(nil)
	if c.waiting {
		c.waiting = false
		l.waiting--
	}
	for i, x := range l.list {
		if x == c {
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
	_ = unix.Close(c.fd) // nothing is expected of it any more
	c.fd = -1
}

// Break ends the connection to peer as a failing network would: both ends find
// out when they next read.
func (l *Link) Break(peer link.Peer) {
	if int(peer) < len(l.conns) && peer >= 0 && l.conns[peer] != nil {
		_ = unix.Shutdown(l.conns[peer].fd, unix.SHUT_RDWR) // broken already is as good
	}
}

// Close ends all connections.
func (l *Link) Close() error {
	for p := range l.conns {
		l.Forget(link.Peer(p))
	}
	return unix.Close(l.epoll)
}

// Post takes frames and writes what the socket takes. Errors are kept for
// Poll.
func (l *Link) Post(peer link.Peer, frames []*link.Frame) int {
	c := l.conns[peer]
	if c == nil || c.err != nil {
		return 0
	}
	if c.out == nil {
		c.out = l.takeOutput()
	}
	n := 0
	for _, f := range frames {
		if !c.out.add(f, l.memory) {
			break
		}
		n++
	}
	if !c.waiting { // else the socket says when it takes more
		c.flush()
	}
	return n
}

// Poll writes what could not be written before, where there is room again, and
// reads what has come. While output is stuck epoll is asked, so that a peer that
// reads nothing costs no attempt to write.
func (l *Link) Poll(sink link.Sink) int {
	if len(l.list)+l.waiting == 0 && !l.broken {
		return 0
	}
	work := 0
	if enough := l.stats.BytesIn + pollTotal; len(l.list) > directConns || l.waiting > 0 {
		work = l.pollReady(sink, enough)
	} else {
		work = l.pollAll(sink, enough)
	}
	if l.broken {
		work += l.tellBroken(sink)
	}
	return work
}

// pollAll reads one connection after the other, from the one on whose turn it is,
// until enough bytes have come.
func (l *Link) pollAll(sink link.Sink, enough uint64) (work int) {
	for range l.list { // as many as there were
		if len(l.list) == 0 || l.stats.BytesIn >= enough {
			break
		}
		l.turn %= len(l.list)
		c := l.list[l.turn]
		work += c.read(sink)
		if c.fd >= 0 {
			l.turn++
		}
	}
	return work
}

// pollReady does the same with those that epoll names. It is asked again when all
// that it has named have had their turn: it would name the same ones first.
func (l *Link) pollReady(sink link.Sink, enough uint64) (work int) {
	if len(l.ready) == 0 {
		n, err := unix.EpollWait(l.epoll, l.events[:], 0)
		if err != nil {
			return 0 // EINTR: next turn
		}
		l.ready = l.events[:max(n, 0)]
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

// tellBroken ends the connections that have an error.
func (l *Link) tellBroken(sink link.Sink) int {
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

// conn is one connection.
type conn struct {
	link    *Link
	peer    link.Peer
	fd      int
	out     *outgoing // nil: nothing is to be written
	in      incoming
	err     error
	waiting bool // EPOLLOUT is armed
}

func (c *conn) fail(err error) {
	if c.err == nil {
		c.err = err
		c.link.broken = true
	}
}

// arm asks epoll for writability while, and only while, output is stuck.
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
