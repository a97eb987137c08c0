package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// Config of a Link.
type Config struct {
	Peers  int         // sidecars of the job
	Ranks  int         // of this sidecar: sessions whose memory is sent from
	Stream link.Stream // of the peers that are reached by sockets
	Log    *slog.Logger
	// InOrder says that writes are placed in order though the device does not say
	// so: whoever sets it knows the device and the network.
	InOrder bool
	// PinnedBytes bounds the registrations of the ranks' memory that are kept: those
	// that are sent from, and as much that peers reach; default 512 MiB.
	PinnedBytes uint64
	Reuse       string // of buffers: bootstrap.ReuseAuto, Off or Always; empty: auto
	registerMax uint64 // registered at once, and in a turn; default 16 MiB
	Receives    string // bootstrap.ReceivesAuto, Own or Shared; empty: auto
	SharedMax   int    // shared receives, default 2,048
	// Lends says that applications may register memory of their own (OpenContext).
	Lends bool
	// InTurn has the engine's goroutine do something, and waits: for Prepare, which is
	// not of that. nil: nothing makes room for a connection. An error: it was not done.
	InTurn func(do func()) error
	// Lost is told, on the engine's goroutine, when the device is gone.
	Lost func(cause error)
}

// Stats counts what the link did.
type Stats struct {
	Pairs                                int // connected now
	Direct                               int // peers that were connected once
	Sends, Receives, Writes, Reads       uint64
	BytesIn, BytesOut                    uint64
	Calls, Polls, Completions, Registers uint64 // Calls: posts of lists of requests
	Faults                               uint64 // queue pairs that failed
	Lanes, LentFaults                    uint64 // queue pairs for memory that applications lend, and those that failed
	LentReads, LentBytes                 uint64 // from and into such memory
}

const (
	eagerMax    = 8 << 10               // a message of two slots; beyond it one write costs less
	perConn     = sendDepth + recvSlots // completions of a connection that ends
	registerMax = 16 << 20              // 4,096 pages, which are pinned while no rank is heard
	settleStep  = 8                     // registrations of ranks that have left that one Poll ends: each is microseconds of the kernel's
	earlyMax    = perConn
)

// Link is the verbs link of one sidecar. It is owned by the engine's goroutine, but for
// Prepare and the ends that it makes, which share places with it, and nothing else.
type Link struct {
	cfg    Config
	memory link.Memory
	nic    nic
	port   Port
	gone   error // why the device cannot be used any more
	stats  Stats

	conns  []*conn // by peer; nil: none over this device
	list   []*conn
	failed int     // of list, those with an error
	left   []*conn // forgotten, or given up, whose queue pairs are still to be destroyed
	ended  []ended // operations of connections that are gone, to be told
	met    []bool  // peers that were connected once

	known    *known
	chosen   int32 // known memory of the payload that is being packed, -1: none
	exported map[link.Key]region

	todo      todo
	stage     stage
	batch     batch
	cq        completionQueue
	watch     watcher
	lending   lending
	sharing   sharing
	places    places
	streaming streamSink
}

// ended is an operation whose connection is gone.
type ended struct {
	peer  link.Peer
	token uint64
	err   error
}

// newLink makes a link over an open device, which it owns.
func newLink(cfg Config, memory link.Memory, n nic) (*Link, error) {
	l := &Link{cfg: cfg, memory: memory, nic: n, port: n.about(), conns: make([]*conn, cfg.Peers), met: make([]bool, cfg.Peers), exported: map[link.Key]region{}}
	l.lending = newLending()
	l.chosen, l.watch.epoll, l.places.bell = -1, -1, -1
	l.cfg.registerMax = cmp.Or(cfg.registerMax, registerMax)
	var err error
	if l.known, err = newKnown(n, func(r link.Ref) []byte { return l.memory.Bytes(r) }, l.cfg, exporter{l}); err != nil {
		return nil, errors.Join(err, n.close())
	}
	l.streaming.l = l
	l.batch = batch{requests: make([]request, 0, batchMax), slots: make([]int32, 0, batchMax), inline: n.inlineMax()}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	l.places.open(min(l.room(), tagIndex))
	return l, nil
}

// room is how many connections the completion queue has room for.
func (l *Link) room() int {
	if l.sharing.receives == nil {
		return l.nic.queueDepth() / perConn
	}
	return (l.nic.queueDepth() - l.sharedSlots()) / sendDepth
}

func (l *Link) open() (err error) {
	if err = l.stage.open(l.nic); err != nil {
		return err
	}
	if err = l.shareReceives(); err != nil {
		return err
	}
	switch l.cfg.Reuse {
	case bootstrap.ReuseOff: // what has no costs is worth nothing
	case bootstrap.ReuseAlways:
		l.known.insist()
	default:
		if err = l.known.calibrate(); err != nil {
			return err
		}
	}
	if err = l.watch.open(); err != nil {
		return err
	}
	watched := append(l.nic.events(), l.cfg.Stream.FD())
	if l.places.bell >= 0 {
		watched = append(watched, l.places.bell)
	}
	for _, fd := range watched {
		if err := l.watch.add(fd, ownedByNone); err != nil {
			return err
		}
	}
	return nil
}

// SetMemory replaces the memory given at first, for a caller that is the memory
// itself and could not name it earlier.
func (l *Link) SetMemory(m link.Memory) {
	l.memory = m
	l.cfg.Stream.SetMemory(m)
}

// Port is what the link uses.
func (l *Link) Port() Port { return l.port }

// Caps says what the link can do over the device; PeerCaps what it can do with a
// peer.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "rdma", Register: true, Read: true, Write: true, InOrder: l.cfg.InOrder, Ordered: true, Notify: true, Delivers: true, GatherMax: 1, EagerMax: eagerMax, RegisterMax: l.cfg.registerMax}
}

// Abilities are those of the device; a peer that is reached by sockets has them as far as
// PeerCaps says.
func (l *Link) Abilities() link.Abilities {
	return link.Abilities{
		Attach: l.Attach, PeerCaps: l.PeerCaps, Break: l.Break,
		Commit: l.Commit, FD: l.FD, Arm: l.Arm, CallsC: true,
		Remote: l, Expose: l.Expose, Release: l.Release, Withdraw: l.Withdraw,
		Caster: l, Gatherer: l, Lender: l,
		AddRegion: l.AddRegion, DropRegion: l.DropRegion,
		Bytes: l.Bytes, Direct: l.Direct, Lent: l.Lent,
		Buffers: l.Buffers, EndSession: l.EndSession,
	}
}

// PeerCaps says what the link can do with a connected peer.
func (l *Link) PeerCaps(peer link.Peer) link.Caps {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Caps()
	}
	caps := l.Caps()
	caps.InOrder = l.cfg.InOrder || c.inOrder
	caps.Lent = c.local.lanes && c.remote.lanes
	return caps
}

// Stats returns the counters.
func (l *Link) Stats() Stats {
	s := l.stats
	s.Pairs = len(l.list)
	return s
}

// Lent counts what was done with memory that applications lend.
func (l *Link) Lent() link.LentCounts {
	return link.LentCounts{Reads: l.stats.LentReads, Bytes: l.stats.LentBytes, Pairs: l.stats.Lanes, Faults: l.stats.LentFaults}
}

// Direct is how many peers were connected by a queue pair.
func (l *Link) Direct() int { return l.stats.Direct }

// Bytes returns what was moved so far, by sockets too.
func (l *Link) Bytes() (in, out uint64) {
	in, out = l.cfg.Stream.Bytes()
	return in + l.stats.BytesIn, out + l.stats.BytesOut
}

// FD is readable when Poll would find work, once Arm has been asked.
func (l *Link) FD() int { return l.watch.epoll }

// Arm is asked before whoever polls goes to sleep on FD. It reports whether there
// is work at once.
func (l *Link) Arm() bool {
	l.Commit()
	if l.gone == nil {
		l.nic.acknowledge()
		if err := l.nic.arm(); err != nil {
			l.lose(fmt.Errorf("asking for the next completion: %w", err))
			return true
		}
		// What came before is not announced.
		if n, err := l.nic.poll(l.cq.batch[:]); err == nil {
			l.cq.stash = append(l.cq.stash, l.cq.batch[:n]...)
		}
	}
	l.watch.look = true
	lanes := l.gone == nil && l.armLanes()
	return lanes || l.laneSteps() || !l.todo.idle() || len(l.cq.stash) > 0 || len(l.ended) > 0 || len(l.watch.heard) > 0 || l.failed > 0 || len(l.left) > 0 || l.known.chooser.Settle(settleStep)
}

// Attach takes over the socket of a peer that has no queue pair. link.ErrLater: as Join.
func (l *Link) Attach(peer link.Peer, fd int) error {
	switch err := l.replace(peer); {
	case errors.Is(err, link.ErrLater):
		return err
	case err != nil:
		return errors.Join(err, unix.Close(fd))
	}
	return l.cfg.Stream.Attach(peer, fd)
}

// Join takes over the socket of a peer, and the queue pair that was connected
// while it was proven. link.ErrLater: it has taken over nothing, since the end of the
// last connection takes longer than a turn can wait for; the next turn asks again.
func (l *Link) Join(peer link.Peer, fd int, e *End) error {
	err := l.replace(peer)
	if errors.Is(err, link.ErrLater) {
		return err
	}
	if err == nil && l.gone != nil { // nothing would tell of its end
		err = fmt.Errorf("%w: %w", link.ErrBroken, l.gone)
	}
	if err == nil {
		err = l.watch.add(fd, int32(peer))
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd), e.Close())
	}
	c := e.c
	c.peer, c.fd = peer, fd
	l.conns[peer] = c
	l.list = append(l.list, c)
	if c.listed = true; c.err != nil {
		l.failed++
	}
	if l.sharing.receives != nil {
		l.sharing.byPair[c.local.pair] = c
	}
	c.adopt()
	if !l.met[peer] {
		l.met[peer] = true
		l.stats.Direct++
	}
	l.cfg.Log.Info("connected by RDMA", "peer", peer, "device", l.port.Device, "port", l.port.Number, "fabric", l.port.Fabric.String(), "gid", l.port.GID,
		"qp", c.local.pair, "peerDevice", c.remote.device, "peerGid", gidText(c.remote.gid), "peerQp", c.remote.pair, "inOrder", l.PeerCaps(peer).InOrder)
	return nil
}

// Forget closes the connection to peer. Where its queue pair has receives of all
// connections it is left (leave).
func (l *Link) Forget(peer link.Peer) {
	if c := l.conns[peer]; c != nil {
		l.leave(c, errForgotten)
		return
	}
	l.cfg.Stream.Forget(peer)
}

var errForgotten = fmt.Errorf("%w: it was given up", link.ErrBroken)

// Close ends all connections, and the device.
func (l *Link) Close() error {
	s := l.Stats()
	if l.cfg.Lends {
		l.cfg.Log.Info("moved memory that ranks have registered", "reads", s.LentReads, "bytes", s.LentBytes, "queuePairs", s.Lanes, "faults", s.LentFaults)
	}
	l.cfg.Log.Info("used RDMA", "device", l.port.Device, "peers", s.Direct, "sends", s.Sends, "receives", s.Receives, "writes", s.Writes, "reads", s.Reads,
		"bytesIn", s.BytesIn, "bytesOut", s.BytesOut, "calls", s.Calls, "polls", s.Polls, "completions", s.Completions, "registered", s.Registers, "faults", s.Faults, "sharedReceives", l.sharedSlots())
	mine, peers := l.known.chooser.Caches()
	copied, gathered := l.known.chooser.Moved()
	l.cfg.Log.Info("kept registrations of ranks' memory", "made", mine.Registrations, "hits", mine.Hits, "evictions", mine.Evictions, "refusals", mine.Refusals, "limit", mine.LimitBytes,
		"copied", copied, "gathered", gathered, "madeForPeers", peers.Registrations, "hitsForPeers", peers.Hits, "evictionsForPeers", peers.Evictions, "refusalsForPeers", peers.Refusals, "limitForPeers", peers.LimitBytes)
	l.places.close()
	for p := range l.conns {
		l.Forget(link.Peer(p))
	}
	for _, c := range l.left {
		c.destroyLanes()
		l.bury(c)
	}
	l.left = nil
	for i := range l.places.by { // ends that were never handed over
		if c := l.places.by[i].Load(); c != nil {
			c.once.Do(c.release)
		}
	}
	l.dropDomains()
	return errors.Join(l.cfg.Stream.Close(), l.release())
}

func (l *Link) release() error {
	l.known.close()
	var err error
	for _, r := range l.exported {
		err = errors.Join(err, l.nic.deregister(r))
	}
	err = errors.Join(err, l.sharing.close(), l.stage.deregister(l.nic), l.nic.close())
	if l.gone != nil {
		err = nil // of a device that is gone
	}
	err = errors.Join(err, l.stage.unmap())
	for _, fd := range []int{l.watch.epoll, l.places.bell} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// AddRegion makes an application's memory known, of which nothing is registered yet.
func (l *Link) AddRegion(r link.Region, session uint32, size uint64) {
	l.known.chooser.AddRegion(r, session, size)
}

// DropRegion forgets the memory of a region that will not be used any more. Its
// registrations end with the next calls of Poll.
func (l *Link) DropRegion(r link.Region) {
	l.dropLender(r)
	l.known.gone(r)
}

// Gathers reports whether a payload of the ranks' memory will be gathered from where
// it is, and counts it (core.Gatherer). Its send ends with the completion of its request
// (settle.go): nothing goes over the wire for that, but it ends later than a copied one,
// and whether that is worth it is tried (reuse.Trials), unless it is insisted on.
func (l *Link) Gathers(peer link.Peer, ref link.Ref) bool {
	k := l.known
	if l.conns[peer] == nil || ref.Len < gatherMin || !k.chooser.Knows(ref.Region) {
		return false
	}
	if l.cfg.Reuse == bootstrap.ReuseAlways {
		return k.gathers(ref)
	}
	s := k.chooser.SessionOf(ref)
	gathers, decided := k.trials.Decided(s, ref.Len)
	if decided && !gathers {
		k.chooser.Copied(ref) // its buffer is not looked at
		return false
	}
	if !k.gathers(ref) {
		return false
	}
	if decided || k.trials.Try(s, ref.Len, time.Since(k.begun).Nanoseconds()) {
		return true
	}
	k.chooser.Copied(ref)
	return false
}

// Buffers counts what was copied from and what was gathered from a session's memory.
func (l *Link) Buffers(session uint32) link.BufferCounts { return l.known.chooser.Buffers(session) }

// EndSession forgets what was learnt of a session.
func (l *Link) EndSession(session uint32) {
	l.known.chooser.EndSession(session)
	if int(session) < max(l.cfg.Ranks, 1) {
		l.known.trials.Forget(reuse.Session(session))
	}
}

// Break ends the connection to peer as a failing network would.
func (l *Link) Break(peer link.Peer) {
	if int(peer) < len(l.conns) && peer >= 0 && l.conns[peer] != nil {
		l.conns[peer].breakOff()
		return
	}
	l.cfg.Stream.Break(peer)
}

// lose is told that the device is gone.
func (l *Link) lose(cause error) {
	if l.gone != nil {
		return
	}
	l.gone = fmt.Errorf("RDMA device %s is gone: %w", l.port.Device, cause)
	l.places.dead.Store(&l.gone)
	l.cfg.Log.Error("RDMA device lost", "device", l.port.Device, "cause", cause)
	for _, fd := range l.nic.events() {
		l.watch.remove(fd) // it is readable for ever
	}
	for _, d := range l.lending.domains { // and so are these
		for _, fd := range d.nic.events() {
			l.watch.remove(fd)
		}
	}
	for _, c := range l.list {
		c.fail(fmt.Errorf("%w: %w", link.ErrBroken, l.gone))
	}
	if l.cfg.Lost != nil {
		l.cfg.Lost(l.gone)
	}
}
