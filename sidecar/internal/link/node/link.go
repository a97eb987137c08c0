package node

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// Limits of one Poll.
const (
	pollBudget = 128 << 10 // bytes of one peer's frames
	pollTotal  = 512 << 10 // and of all
	pollReads  = 256 << 10 // bytes of reads
	lookEvery  = 256       // polls between two looks at sockets
)

// eagerMax is as over tcp. Up to there one frame, which wakes each sidecar once, beats
// announcement, read and answer: 15 us against 22 for 16 KiB, 18 against 19 for 64 KiB
// (`outrigger bench latency`, two cores, AMD EPYC, 2026-11-25). It is one copy in either
// way when the receive is there.
const eagerMax = 64 << 10

// Config of a Link.
type Config struct {
	Peers  int         // sidecars of the job
	Stream link.Stream // of the peers that are reached by sockets
	Log    *slog.Logger
}

// Stats counts what the link did.
type Stats struct {
	BytesIn, BytesOut uint64 // through rings
	BytesRead         uint64 // out of peers' memory
	ReadByCall        uint64 // of them and of BytesIn, by system calls
	BytesLent         uint64 // of this side, that peers have read
	Reads, Wakes      uint64
	Direct            int // peers that were connected once
}

// Link is the node link of one sidecar. It is owned by the engine's goroutine, but for
// Prepare and the ends that it makes.
type Link struct {
	cfg    Config
	memory link.Memory
	conns  []*conn // by peer; nil: none over memory
	list   []*conn
	met    []bool // peers that were connected once
	turn   int    // of list, whose turn it is
	failed int    // of list, those with an error
	armed  bool   // peers are told that this side sleeps
	look   bool   // at the sockets, in the next Poll
	polls  int

	board   *board
	boardFD int // which only this side writes
	shares  map[link.Region]*shared
	ops     queue.Fair[link.Region, operation]
	ended   []ended
	regions int // of peers, that are mapped
	// regionsMost is how many there may be.
	regionsMost int
	unmapping   sync.WaitGroup
	order       atomic.Uint64           // a read-modify-write of it is a full barrier
	mapped      uint64                  // bytes of regions
	looks       atomic.Int32            // for pages of regions, under way
	refusals    []atomic.Pointer[error] // by peer, why no end is made for it any more

	input  []byte // what is handed over
	oob    []byte
	epoll  int
	events [64]unix.EpollEvent
	stats  Stats
}

// New makes a link.
func New(cfg Config, memory link.Memory) (*Link, error) {
	l := &Link{
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

// Whose descriptor an event of epoll is about.
const (
	stream  = -1 // the stream's; else the peer's number
	ofProof = 0
	ofWords = 1
)

// What epoll tells of a socket. Wake-ups are edges: they need not be read for the next one
// to be told.
const (
	proofEvents = unix.EPOLLIN | unix.EPOLLRDHUP
	wordsEvents = proofEvents | unix.EPOLLET
)

// watch has epoll tell of a descriptor; how is EPOLL_CTL_ADD, or EPOLL_CTL_MOD of one that
// is watched.
func (l *Link) watch(how, fd int, events uint32, owner, which int32) error {
	ev := unix.EpollEvent{Events: events, Fd: owner, Pad: which}
	if err := unix.EpollCtl(l.epoll, how, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// SetMemory replaces the memory given to New, for a caller that is the memory
// itself and could not name it earlier.
func (l *Link) SetMemory(m link.Memory) {
	l.memory = m
	l.cfg.Stream.SetMemory(m)
}

// Caps says what the link can do with a peer of this machine; PeerCaps with each.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "node", Register: true, Read: true, GatherMax: 1, EagerMax: eagerMax}
}

// Abilities are those of both ways to a peer, by memory and by sockets.
func (l *Link) Abilities() link.Abilities {
	return link.Abilities{
		Attach: l.Attach, PeerCaps: l.PeerCaps, Break: l.Break,
		FD: l.FD, Arm: l.Arm,
		Remote: l, Release: l.Release, ShareRegion: l.ShareRegion, DropRegion: l.DropRegion,
		Bytes: l.Bytes, Direct: l.Direct,
	}
}

// PeerCaps says what the link can do with a connected peer.
func (l *Link) PeerCaps(peer link.Peer) link.Caps {
	if l.conns[peer] == nil {
		return l.cfg.Stream.Caps()
	}
	return l.Caps()
}

// Stats returns the counters.
func (l *Link) Stats() Stats { return l.stats }

// Direct is how many peers were connected by memory.
func (l *Link) Direct() int { return l.stats.Direct }

// Bytes returns what was moved so far, by sockets too.
func (l *Link) Bytes() (in, out uint64) {
	in, out = l.cfg.Stream.Bytes()
	return in + l.stats.BytesIn + l.stats.BytesRead, out + l.stats.BytesOut + l.stats.BytesLent
}

// FD is readable when Poll would find work, once Arm has been asked.
func (l *Link) FD() int { return l.epoll }

// Arm is asked before whoever polls goes to sleep on FD. It reports whether there is
// work at once.
func (l *Link) Arm() bool {
	l.armed, l.look = true, true
	for _, c := range l.list {
		if publish(c.in.sleep, 1); c.needs > 0 {
			publish(c.out.waits, 1)
		}
		c.waitToSay()
	}
	for _, c := range l.list {
		if c.calls() {
			return true
		}
	}
	return l.failed > 0 || len(l.ended) > 0
}

// calls reports that there is something to do that no socket tells of.
func (c *conn) calls() bool {
	if n, err := c.in.ready(); err != nil || n != c.left || c.src.waits() || c.toldMore() || c.ending != nil {
		return true
	}
	if c.needs == 0 || c.behind() {
		return false
	}
	room, err := c.out.room()
	return err != nil || room >= c.needs
}

// Attach takes over the socket of a peer that is reached by the stream.
func (l *Link) Attach(peer link.Peer, fd int) error {
	l.forget(peer)
	return l.cfg.Stream.Attach(peer, fd)
}

// Join takes over the socket of a peer of this machine, and the end that was connected
// while it was proven.
func (l *Link) Join(peer link.Peer, fd int, e *End) error {
	l.forget(peer)
	l.cfg.Stream.Forget(peer)
	err := l.watch(unix.EPOLL_CTL_ADD, fd, proofEvents, int32(peer), ofProof)
	if err == nil {
		err = l.watch(unix.EPOLL_CTL_ADD, e.local, wordsEvents, int32(peer), ofWords)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("node: %w", err), unix.Close(fd), e.Close())
	}
	c := &conn{l: l, peer: peer, fd: fd, regions: map[link.Region]*region{}}
	e.handOver(c)
	l.conns[peer] = c
	l.list = append(l.list, c)
	if !l.met[peer] {
		l.met[peer] = true
		l.stats.Direct++
	}
	for _, s := range l.shares {
		if s.told {
			c.share(s)
		}
	}
	l.look = true
	l.cfg.Log.Info("connected by shared memory", "peer", peer)
	return nil
}

// Forget closes the connection to peer.
func (l *Link) Forget(peer link.Peer) {
	l.forget(peer)
	l.cfg.Stream.Forget(peer)
}

// forget ends a connection over memory. Its operations end with the next Poll.
func (l *Link) forget(peer link.Peer) {
	c := l.conns[peer]
	if c == nil {
		return
	}
	l.drop(c, func(op *operation) { l.ended = append(l.ended, ended{peer, op.token}) })
}

// drop takes c and its operations out.
func (l *Link) drop(c *conn, end func(*operation)) {
	l.conns[c.peer] = nil
	for i, x := range l.list {
		if x == c {
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
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
}

// Break ends the connection to peer as a failing network would.
func (l *Link) Break(peer link.Peer) {
	if peer >= 0 && int(peer) < len(l.conns) && l.conns[peer] != nil {
		_ = unix.Shutdown(l.conns[peer].fd, unix.SHUT_RDWR) // broken already is as good
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

// Post writes frames to the peer's ring, or hands them to the stream.
func (l *Link) Post(peer link.Peer, frames []*link.Frame) int {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Post(peer, frames)
	}
	n := 0
	for c.err == nil && n < len(frames) && c.send(frames[n]) {
		n++
	}
	c.tell()
	return n
}

// Poll reads what has come, copies what is being read, and looks now and then at the
// sockets.
func (l *Link) Poll(sink link.Sink) int {
	work := l.cfg.Stream.Poll(sink)
	if l.armed {
		l.rise()
	}
	if l.polls++; l.look || l.polls >= lookEvery {
		l.polls, l.look = 0, false
		work += l.watchful()
	}
	if len(l.ended) > 0 {
		work += l.tellEnded(sink)
	}
	if len(l.list) == 0 {
		return work
	}
	work += l.read(sink)
	if !l.ops.Empty() {
		work += l.move(sink)
	}
	if l.failed > 0 {
		work += l.tellFailed(sink)
	}
	return work
}

// rise tells peers that this side is awake.
func (l *Link) rise() {
	l.armed = false
	for _, c := range l.list {
		c.in.sleep.Store(0)
		c.out.waits.Store(0)
	}
}

// read reads one connection after the other, from the one on whose turn it is, until
// enough bytes have come.
func (l *Link) read(sink link.Sink) (work int) {
	enough := l.stats.BytesIn + pollTotal
	for range l.list { // as many as there were
		if len(l.list) == 0 || l.stats.BytesIn >= enough {
			break
		}
		l.turn %= len(l.list)
		c := l.list[l.turn]
		work += c.read(sink, pollBudget)
		if c.gone {
			continue
		}
		if c.unblock() {
			work++
		}
		if c.toldMore() {
			work += c.hear()
		}
		if len(c.words) > 0 {
			c.sayOn()
		}
		l.turn++
	}
	return work
}

// watchful looks at the sockets.
func (l *Link) watchful() (work int) {
	n, err := unix.EpollWait(l.epoll, l.events[:], 0)
	if err != nil {
		return 0 // EINTR: next time
	}
	for _, ev := range l.events[:n] {
		if ev.Fd == stream { // it was polled
			continue
		}
		c := l.conns[ev.Fd]
		if c == nil || c.err != nil || c.ending != nil {
			continue
		}
		switch {
		case ev.Pad == ofProof:
			work += c.look()
		case c.rung < rungMax && ev.Events == unix.EPOLLIN:
			c.rung++
		default:
			work += c.hear()
		}
	}
	return work
}

func (l *Link) tellEnded(sink link.Sink) (work int) {
	list := l.ended
	l.ended = nil
	for _, e := range list {
		sink.Done(e.peer, e.token, errForgotten)
	}
	return len(list)
}

var errForgotten = fmt.Errorf("%w: it was given up", link.ErrBroken)

// tellFailed ends the connections that have an error.
func (l *Link) tellFailed(sink link.Sink) (work int) {
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
		i = -1 // the news may have changed the list
	}
	return work
}
