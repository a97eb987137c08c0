package node

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence/sockets"
)

// Limits of one Poll, so that no peer and no kind of work delays the others for long.
const (
	pollBudget         = 128 << 10 // bytes of frames of one peer: some tens of microseconds of copying
	pollTotal          = 512 << 10 // bytes of frames of all peers
	pollReads          = 256 << 10 // bytes of reads of all peers
	socketPollInterval = 256       // polls between two polls of the sockets: epoll_wait costs more than an empty Poll
)

// eagerMax is the same as over tcp. Up to this size one frame, which wakes each sidecar
// once, is faster than announcement, read and answer: 15 us against 22 for 16 KiB, 18
// against 19 for 64 KiB (`outrigger bench latency`, two cores, AMD EPYC, 2026-11-25).
// Both ways make one copy if the receive is posted.
const eagerMax = 64 << 10

// Config is the configuration of a Link.
type Config struct {
	Peers  int         // number of sidecars of the job
	Stream link.Stream // link to the peers that are reached by sockets
	Log    *slog.Logger
	Copies *copyeng.Copies // what large reads are offloaded to; nil: they are copied inline
}

// Stats counts the work of a link.
type Stats struct {
	BytesIn, BytesOut uint64 // through rings
	BytesRead         uint64 // read from memory of peers
	ReadByCall        uint64 // of BytesRead and BytesIn, those read by system calls
	BytesLent         uint64 // bytes of this side's memory that peers have read
	Reads, Wakes      uint64
	Direct            int // peers that were connected at least once
}

// Link is the node link of one sidecar. It is owned by the engine's goroutine, except for
// Prepare and the Endpoints that it returns.
type Link struct {
	cfg          Config
	memory       link.Memory
	conns        []*conn // connections by peer; nil: no connection through memory
	list         []*conn
	met          []bool // by peer: it was connected at least once
	visits       visits
	failed       int  // number of connections in list with an error
	armed        bool // peers see the flag that this side sleeps
	checkSockets bool // poll the sockets in the next Poll

	board   *board
	boardFD int // the board, which peers open for reading
	shares  map[link.Region]*shared
	ops     queue.Fair[link.Region, operation]
	far     queue.Fair[link.Region, *offloaded]
	flying  []*offloaded // of which no more pieces will be submitted
	ended   []ended
	regions int // number of mapped regions of peers
	// regionsMost is the bound of regions.
	regionsMost int
	unmapping   sync.WaitGroup
	order       atomic.Uint64           // a read-modify-write of it is a full barrier
	mapped      uint64                  // bytes of regions
	probes      atomic.Int32            // page probes in flight
	refusals    []atomic.Pointer[error] // by peer: why no Endpoint is made for it any more

	input  []byte // buffer of frames that are handed over
	oob    []byte
	epoll  int
	events [64]unix.EpollEvent
	stats  Stats
}

// New returns a link.
func New(cfg Config, memory link.Memory) (*Link, error) {
	l := &Link{
		far: queue.Fair[link.Region, *offloaded]{PerOwner: link.OperationsPerSession},
		cfg: cfg, memory: memory, conns: make([]*conn, cfg.Peers), met: make([]bool, cfg.Peers), refusals: make([]atomic.Pointer[error], cfg.Peers), shares: map[link.Region]*shared{}, ops: queue.Fair[link.Region, operation]{PerOwner: link.OperationsPerSession},
		regionsMost: regionsAll, boardFD: -1, epoll: -1, input: make([]byte, wholeMax), oob: make([]byte, unix.CmsgSpace(4*8)),
	}
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		l.regionsMost = regionsLimit(files.Cur)
	}
	fd, mem, err := segment.CreateToRead("sidecar-board", boardBytes)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	l.board, l.boardFD = newBoard(mem), fd
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		err = l.watch(unix.EPOLL_CTL_ADD, cfg.Stream.FD(), proofEvents, stream, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node: %w", err), l.release())
	}
	return l, nil
}

// Values of the user data of an epoll event: the owner of the descriptor (Fd), and which
// of its descriptors it is (Pad).
const (
	stream  = -1 // the descriptor is the stream's; otherwise Fd is the peer's number
	ofProof = 0
	ofLocal = 1
)

// Events that epoll reports of a socket. Wake-ups are edge-triggered: they need not be
// read for the next one to be reported.
const (
	proofEvents = unix.EPOLLIN | unix.EPOLLRDHUP
	localEvents = proofEvents | unix.EPOLLET
)

// watch makes epoll report events of a descriptor; how is EPOLL_CTL_ADD, or EPOLL_CTL_MOD
// for a descriptor that is watched already.
func (l *Link) watch(how, fd int, events uint32, owner, which int32) error {
	ev := unix.EpollEvent{Events: events, Fd: owner, Pad: which}
	if err := unix.EpollCtl(l.epoll, how, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// SetMemory replaces the memory given to New, for a caller that implements Memory itself
// and exists only after New.
func (l *Link) SetMemory(m link.Memory) {
	l.memory = m
	l.cfg.Stream.SetMemory(m)
}

// Caps returns what the link can do with a peer of this machine; PeerCaps says it of each
// peer.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "node", Register: true, Read: true, GatherMax: 1, EagerMax: eagerMax}
}

// Abilities returns the abilities of both kinds of connection, through memory and through
// sockets.
func (l *Link) Abilities() link.Abilities {
	return link.Abilities{
		Attach: l.Attach, PeerCaps: l.PeerCaps, Break: l.Break,
		FD: l.FD, Arm: l.Arm,
		Remote: l, Release: l.Release, ShareRegion: l.ShareRegion, DropRegion: l.DropRegion,
		Bytes: l.Bytes, Direct: l.Direct,
	}
}

// PeerCaps returns what the link can do with a connected peer.
func (l *Link) PeerCaps(peer link.Peer) link.Caps {
	if l.conns[peer] == nil {
		return l.cfg.Stream.Caps()
	}
	return l.Caps()
}

// Stats returns the counters.
func (l *Link) Stats() Stats { return l.stats }

// Direct returns the number of peers that were connected through memory.
func (l *Link) Direct() int { return l.stats.Direct }

// Bytes returns the bytes moved so far, those of sockets included.
func (l *Link) Bytes() (in, out uint64) {
	in, out = l.cfg.Stream.Bytes()
	return in + l.stats.BytesIn + l.stats.BytesRead, out + l.stats.BytesOut + l.stats.BytesLent
}

// FD returns a descriptor that is readable when Poll would find work, after a call of
// Arm.
func (l *Link) FD() int { return l.epoll }

// Arm prepares a sleep on FD, and reports whether there is work already.
func (l *Link) Arm() bool {
	l.armed, l.checkSockets = true, true
	work := l.cfg.Stream.Arm()
	for _, c := range l.visits.list {
		if publish(c.in.sleep, 1); c.needs > 0 {
			publish(c.out.waits, 1)
		}
		c.armControls()
	}
	for _, c := range l.visits.list {
		if c.hasWork() {
			return true
		}
	}
	return work || l.failed > 0 || len(l.ended) > 0
}

// hasWork reports whether there is work of which no socket event informs.
func (c *conn) hasWork() bool {
	if n, err := c.in.ready(); err != nil || n != c.left || c.src.pending() || c.hasControls() || c.end.cause != nil {
		return true
	}
	if c.needs == 0 || c.refsFull() {
		return false
	}
	room, err := c.out.room()
	return err != nil || room >= c.needs
}

// Attach takes ownership of the socket of a peer that is reached by the stream.
func (l *Link) Attach(peer link.Peer, fd int) error {
	l.forget(peer)
	return l.cfg.Stream.Attach(peer, fd)
}

// Join takes ownership of the socket of a peer of this machine, and of the Endpoint that
// was connected while the peer was authenticated.
func (l *Link) Join(peer link.Peer, fd int, e *Endpoint) error {
	l.forget(peer)
	l.cfg.Stream.Forget(peer)
	err := l.watch(unix.EPOLL_CTL_ADD, fd, proofEvents, int32(peer), ofProof)
	if err == nil {
		err = l.watch(unix.EPOLL_CTL_ADD, e.local, localEvents, int32(peer), ofLocal)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("node: %w", err), unix.Close(fd), e.Close())
	}
	c := &conn{l: l, peer: peer, fd: fd, regions: map[link.Region]*region{}}
	e.handOver(c)
	l.conns[peer] = c
	l.list = append(l.list, c)
	c.use()
	if !l.met[peer] {
		l.met[peer] = true
		l.stats.Direct++
	}
	for _, s := range l.shares {
		if s.announced {
			c.share(s)
		}
	}
	l.checkSockets = true
	l.cfg.Log.Info("connected by shared memory", "peer", peer)
	return nil
}

// Forget closes the connection to peer.
func (l *Link) Forget(peer link.Peer) {
	l.forget(peer)
	l.cfg.Stream.Forget(peer)
}

// forget ends a connection through memory. Its operations end with the next Poll.
func (l *Link) forget(peer link.Peer) {
	c := l.conns[peer]
	if c == nil {
		return
	}
	l.drop(c, func(op *operation) { l.ended = append(l.ended, ended{peer, op.token}) })
}

// drop removes c and its operations, and calls end for each operation.
func (l *Link) drop(c *conn, end func(*operation)) {
	l.conns[c.peer] = nil
	isC := func(x *conn) bool { return x == c }
	l.list, l.visits.list = slices.DeleteFunc(l.list, isC), slices.DeleteFunc(l.visits.list, isC)
	if c.err != nil {
		l.failed--
	}
	c.close()
	l.ops.RemoveFunc(func(op *operation) bool {
		if op.c == c {
			end(op)
		}
		return op.c == c
	})
	l.dropFar(c, end)
}

// Break ends the connection to peer as a failing network would.
func (l *Link) Break(peer link.Peer) {
	if peer >= 0 && int(peer) < len(l.conns) && l.conns[peer] != nil {
		_ = unix.Shutdown(l.conns[peer].fd, unix.SHUT_RDWR) // an error means that it is broken already
		return
	}
	l.cfg.Stream.Break(peer)
}

// Close ends all connections.
func (l *Link) Close() error {
	for p := range l.conns {
		l.forget(link.Peer(p))
	}
	if l.stats.Direct > 0 {
		s := &l.stats
		l.cfg.Log.Info("used shared memory", "peers", s.Direct, "bytesIn", s.BytesIn, "bytesOut", s.BytesOut, "reads", s.Reads, "bytesRead", s.BytesRead, "wakes", s.Wakes)
	}
	return errors.Join(l.cfg.Stream.Close(), l.release())
}

func (l *Link) release() error {
	for r := range l.shares {
		l.DropRegion(r)
	}
	l.unmapping.Wait()
	err := segment.Unmap(l.board.mem)
	for _, fd := range []int{l.boardFD, l.epoll} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// Post writes frames to the peer's ring, or passes them to the stream.
func (l *Link) Post(peer link.Peer, frames []*link.Frame) int {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Post(peer, frames)
	}
	c.use() // an answer is probable
	n := 0
	for c.err == nil && n < len(frames) && c.send(frames[n]) {
		n++
	}
	c.publishOut()
	return n
}

// Poll reads frames, copies the data of reads, and polls the sockets now and then.
func (l *Link) Poll(sink link.Sink) int {
	work := l.cfg.Stream.Poll(sink)
	if l.armed {
		l.clearSleep()
	}
	if len(l.list) > 0 && l.visits.clock.IsOver() {
		l.retire()
	}
	if l.visits.polls++; l.checkSockets || l.visits.polls >= socketPollInterval || l.lookAtSilent() {
		l.visits.polls, l.checkSockets = 0, false
		work += l.pollSockets()
	}
	if len(l.ended) > 0 {
		work += l.reportEnded(sink)
	}
	if len(l.list) == 0 {
		return work
	}
	if len(l.visits.list) > 0 {
		work += l.readConns(sink)
	}
	if !l.ops.Empty() {
		work += l.move(sink)
	}
	if len(l.flying) > 0 || !l.far.Empty() {
		work += l.moveFar(sink)
	}
	if l.failed > 0 {
		work += l.reportFailed(sink)
	}
	return work
}

// clearSleep clears the flags by which peers see that this side sleeps. Those of silent
// connections stay.
func (l *Link) clearSleep() {
	l.armed = false
	for _, c := range l.visits.list {
		c.in.sleep.Store(0)
		c.out.waits.Store(0)
	}
}

// readConns reads one connection in use after the other, beginning with the one in turn, up to
// pollTotal bytes.
func (l *Link) readConns(sink link.Sink) (work int) {
	enough := l.stats.BytesIn + pollTotal
	v := &l.visits
	for range v.list { // list may change during the loop
		if len(v.list) == 0 || l.stats.BytesIn >= enough {
			break
		}
		v.turn %= len(v.list)
		c := v.list[v.turn]
		n := c.read(sink, pollBudget)
		if c.gone {
			work += n
			continue
		}
		if c.retryBlocked() {
			n++
		}
		if c.hasControls() {
			n += c.readControls()
		}
		if n > 0 {
			c.visit.used = true
		}
		work += n
		if len(c.unsent) > 0 {
			c.flushControls()
		}
		v.turn++
	}
	v.clock.Moved(l.stats.BytesIn + pollTotal - enough)
	return work
}

// pollSockets handles the events of the sockets.
func (l *Link) pollSockets() (work int) {
	events := sockets.Events(l.epoll, l.events[:])
	l.checkSockets = len(events) == len(l.events) // there may be more
	for _, ev := range events {
		if ev.Fd == stream { // Poll has polled it already
			continue
		}
		c := l.conns[ev.Fd]
		if c == nil {
			continue
		}
		c.use() // it rings, or ends
		if c.err != nil || c.end.cause != nil {
			continue
		}
		switch {
		case ev.Pad == ofProof:
			work += c.checkProof()
		case c.wakes < wakesMax && ev.Events == unix.EPOLLIN:
			c.wakes++
		default:
			work += c.readControls()
		}
	}
	return work
}

func (l *Link) reportEnded(sink link.Sink) (work int) {
	list := l.ended
	l.ended = nil
	for _, e := range list {
		sink.Done(e.peer, e.token, errForgotten)
	}
	return len(list)
}

var errForgotten = fmt.Errorf("%w: forgotten", link.ErrBroken)

// reportFailed ends the connections that have an error.
func (l *Link) reportFailed(sink link.Sink) (work int) {
	for i := 0; i < len(l.list) && l.failed > 0; i++ {
		c := l.list[i]
		if c.err == nil {
			continue
		}
		err := c.err
		var tokens []uint64
		l.drop(c, func(op *operation) { tokens = append(tokens, op.token) })
		for _, t := range tokens {
			sink.Done(c.peer, t, link.Broken(err))
		}
		sink.Down(c.peer, err)
		work++
		i = -1 // the calls of sink may have changed the list
	}
	return work
}
