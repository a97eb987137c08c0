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

// Config is the configuration of a Link.
type Config struct {
	Peers  int         // number of sidecars of the job
	Ranks  int         // number of ranks of this sidecar, whose memory is sent from
	Stream link.Stream // link to the peers that are reached by sockets
	Log    *slog.Logger
	// InOrder says that writes are placed in order although the device does not say so.
	// Only an administrator who knows the device and the network may set it.
	InOrder bool
	// PinnedBytes bounds the cached registrations of the ranks' memory: those for sends,
	// and separately those for peers; default 512 MiB.
	PinnedBytes uint64
	Reuse       string // reuse of buffers: bootstrap.ReuseAuto, Off or Always; empty: auto
	registerMax uint64 // bytes registered at once, and in a turn; default 16 MiB
	Receives    string // bootstrap.ReceivesAuto, Own or Shared; empty: auto
	SharedMax   int    // shared receives, default 2,048
	// Lends says that applications may register memory of their own (OpenContext).
	Lends bool
	// InTurn executes do on the engine's goroutine, and waits for it. Prepare, which runs
	// on other goroutines, uses it. nil: Prepare cannot end registrations to free memory.
	// It returns an error if do was not executed.
	InTurn func(do func()) error
	// Lost is called on the engine's goroutine when the device is lost.
	Lost func(cause error)
}

// Stats counts the work of a link.
type Stats struct {
	Pairs                                int // queue pairs that are connected now
	Direct                               int // peers that were connected at least once
	Sends, Receives, Writes, Reads       uint64
	BytesIn, BytesOut                    uint64
	Calls, Polls, Completions, Registers uint64 // Calls: posts of lists of requests
	Faults                               uint64 // queue pairs that failed
	LentPairs, LentFaults                uint64 // queue pairs for memory that applications lend, and those that failed
	LentReads, LentBytes                 uint64 // number and bytes of reads from and into memory that applications lend
}

const (
	eagerMax       = 8 << 10               // a message of two slots; a larger one costs less by one write
	perConn        = sendDepth + recvSlots // most completions of a connection that ends
	registerMax    = 16 << 20              // 4,096 pages, about 0.4 ms of pinning, in which the engine serves no rank
	settlesPerPoll = 8                     // registrations of ranks that have left that one Poll ends: each takes the kernel microseconds
	earlyMax       = perConn               // completions of an unjoined connection: no queue pair can have more
)

// Link is the verbs link of one sidecar. It is owned by the engine's goroutine, except
// for Prepare and the Endpoints that it returns, which share only the connTable with that
// goroutine.
type Link struct {
	cfg    Config
	memory link.Memory
	nic    nic
	port   Port
	lost   error // reason why the device can no longer be used; nil: it can be used
	stats  Stats

	conns         []*conn // connections by peer; nil: no connection over this device
	list          []*conn
	failed        int     // number of connections in list with an error
	closing       []*conn // closed or failed connections whose queue pairs still exist
	ended         []ended // operations of lost connections, which the next Poll reports
	everConnected []bool  // by peer: it was connected at least once

	regs      *regs
	chosenReg int32 // use of the registered payload that is being packed, -1: none
	exported  map[link.Key]region

	todo      todo
	stage     stage
	batch     batch
	cq        completionQueue
	watch     watcher
	lending   lending
	sharing   sharing
	table     connTable
	streaming streamSink
}

// ended is an operation whose connection is lost.
type ended struct {
	peer  link.Peer
	token uint64
	err   error
}

// newLink returns a link over an open device, which it owns.
func newLink(cfg Config, memory link.Memory, n nic) (*Link, error) {
	l := &Link{cfg: cfg, memory: memory, nic: n, port: n.portInfo(), conns: make([]*conn, cfg.Peers), everConnected: make([]bool, cfg.Peers), exported: map[link.Key]region{}}
	l.lending = newLending()
	l.chosenReg, l.watch.epoll, l.table.bell = -1, -1, -1
	l.cfg.registerMax = cmp.Or(cfg.registerMax, registerMax)
	var err error
	if l.regs, err = newRegs(n, func(r link.Ref) []byte { return l.memory.Bytes(r) }, l.cfg, exporter{l}); err != nil {
		return nil, errors.Join(err, n.close())
	}
	l.streaming.l = l
	l.batch = batch{requests: make([]request, 0, batchMax), slots: make([]int32, 0, batchMax), inline: n.inlineMax()}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	l.table.open(min(l.room(), tagIndex))
	return l, nil
}

// room returns how many connections the completion queue has room for.
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
	case bootstrap.ReuseOff: // without costs no buffer is worth a registration
	case bootstrap.ReuseAlways:
		l.regs.alwaysRegister()
	default:
		if err = l.regs.calibrate(); err != nil {
			return err
		}
	}
	if err = l.watch.open(); err != nil {
		return err
	}
	watched := append(l.nic.events(), l.cfg.Stream.FD())
	if l.table.bell >= 0 {
		watched = append(watched, l.table.bell)
	}
	for _, fd := range watched {
		if err := l.watch.add(fd, noOwner); err != nil {
			return err
		}
	}
	return nil
}

// SetMemory replaces the memory given to newLink, for a caller that implements Memory
// itself and exists only after it.
func (l *Link) SetMemory(m link.Memory) {
	l.memory = m
	l.cfg.Stream.SetMemory(m)
}

// Port returns the port that the link uses.
func (l *Link) Port() Port { return l.port }

// Caps returns what the link can do over the device; PeerCaps what it can do with a peer.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "rdma", Register: true, Read: true, Write: true, InOrder: l.cfg.InOrder, Ordered: true, Notify: true, Delivers: true, GatherMax: 1, EagerMax: eagerMax, RegisterMax: l.cfg.registerMax}
}

// Abilities returns the abilities of the device; a peer that is reached by sockets has
// them as far as PeerCaps says.
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

// PeerCaps returns what the link can do with a connected peer.
func (l *Link) PeerCaps(peer link.Peer) link.Caps {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Caps()
	}
	caps := l.Caps()
	caps.InOrder = l.cfg.InOrder || c.inOrder
	caps.Lent = c.local.lends && c.remote.lends
	return caps
}

// Stats returns the counters.
func (l *Link) Stats() Stats {
	s := l.stats
	s.Pairs = len(l.list)
	return s
}

// Lent returns the counts of operations on memory that applications lend.
func (l *Link) Lent() link.LentCounts {
	return link.LentCounts{Reads: l.stats.LentReads, Bytes: l.stats.LentBytes, Pairs: l.stats.LentPairs, Faults: l.stats.LentFaults}
}

// Direct returns the number of peers that were connected by a queue pair.
func (l *Link) Direct() int { return l.stats.Direct }

// Bytes returns the bytes moved so far, those of sockets included.
func (l *Link) Bytes() (in, out uint64) {
	in, out = l.cfg.Stream.Bytes()
	return in + l.stats.BytesIn, out + l.stats.BytesOut
}

// FD returns a descriptor that is readable when Poll would find work, after a call of
// Arm.
func (l *Link) FD() int { return l.watch.epoll }

// Arm prepares a sleep on FD, and reports whether there is work already.
func (l *Link) Arm() bool {
	l.Commit()
	if l.lost == nil {
		l.nic.acknowledge()
		if err := l.nic.arm(); err != nil {
			l.deviceLost(fmt.Errorf("arming the completion queue: %w", err))
			return true
		}
		// No event reports completions that were there before.
		if n, err := l.nic.poll(l.cq.batch[:]); err == nil {
			l.cq.stash = append(l.cq.stash, l.cq.batch[:n]...)
		}
	}
	l.watch.check = true
	lentQPs := l.lost == nil && l.armLent()
	return lentQPs || l.hasLentSteps() || !l.todo.idle() || len(l.cq.stash) > 0 || len(l.ended) > 0 || len(l.watch.faults) > 0 || l.failed > 0 || len(l.closing) > 0 || l.regs.chooser.Settle(settlesPerPoll)
}

// Attach takes ownership of the socket of a peer that has no queue pair. link.ErrLater:
// as for Join.
func (l *Link) Attach(peer link.Peer, fd int) error {
	switch err := l.replace(peer); {
	case errors.Is(err, link.ErrLater):
		return err
	case err != nil:
		return errors.Join(err, unix.Close(fd))
	}
	return l.cfg.Stream.Attach(peer, fd)
}

// Join takes ownership of the socket of a peer, and of the Endpoint that was connected
// while the peer was authenticated. With link.ErrLater it has taken nothing, since the
// end of the last connection takes longer than a turn can wait; the caller tries again in
// the next turn.
func (l *Link) Join(peer link.Peer, fd int, e *Endpoint) error {
	err := l.replace(peer)
	if errors.Is(err, link.ErrLater) {
		return err
	}
	if err == nil && l.lost != nil { // no event would report its end
		err = fmt.Errorf("%w: %w", link.ErrBroken, l.lost)
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
	if !l.everConnected[peer] {
		l.everConnected[peer] = true
		l.stats.Direct++
	}
	l.cfg.Log.Info("connected by RDMA", "peer", peer, "device", l.port.Device, "port", l.port.Number, "fabric", l.port.Fabric.String(), "gid", l.port.GID,
		"qp", c.local.pair, "peerDevice", c.remote.device, "peerGid", gidText(c.remote.gid), "peerQp", c.remote.pair, "inOrder", l.PeerCaps(peer).InOrder)
	return nil
}

// Forget closes the connection to peer. If receives are shared, its queue pair may end
// later (closeConn).
func (l *Link) Forget(peer link.Peer) {
	if c := l.conns[peer]; c != nil {
		l.closeConn(c, errForgotten)
		return
	}
	l.cfg.Stream.Forget(peer)
}

var errForgotten = fmt.Errorf("%w: forgotten", link.ErrBroken)

// Close ends all connections, and the device.
func (l *Link) Close() error {
	s := l.Stats()
	if l.cfg.Lends {
		l.cfg.Log.Info("moved memory that ranks have registered", "reads", s.LentReads, "bytes", s.LentBytes, "queuePairs", s.LentPairs, "faults", s.LentFaults)
	}
	l.cfg.Log.Info("used RDMA", "device", l.port.Device, "peers", s.Direct, "sends", s.Sends, "receives", s.Receives, "writes", s.Writes, "reads", s.Reads,
		"bytesIn", s.BytesIn, "bytesOut", s.BytesOut, "calls", s.Calls, "polls", s.Polls, "completions", s.Completions, "registered", s.Registers, "faults", s.Faults, "sharedReceives", l.sharedSlots())
	mine, peers := l.regs.chooser.Caches()
	copied, gathered := l.regs.chooser.Moved()
	l.cfg.Log.Info("kept registrations of ranks' memory", "made", mine.Registrations, "hits", mine.Hits, "evictions", mine.Evictions, "refusals", mine.Refusals, "limit", mine.LimitBytes,
		"copied", copied, "gathered", gathered, "madeForPeers", peers.Registrations, "hitsForPeers", peers.Hits, "evictionsForPeers", peers.Evictions, "refusalsForPeers", peers.Refusals, "limitForPeers", peers.LimitBytes)
	l.table.close()
	for p := range l.conns {
		l.Forget(link.Peer(p))
	}
	for _, c := range l.closing {
		c.destroyLent()
		l.destroyConn(c)
	}
	l.closing = nil
	for i := range l.table.by { // Endpoints that were never joined
		if c := l.table.by[i].Load(); c != nil {
			c.once.Do(c.release)
		}
	}
	l.dropDomains()
	return errors.Join(l.cfg.Stream.Close(), l.release())
}

func (l *Link) release() error {
	l.regs.close()
	var err error
	for _, r := range l.exported {
		err = errors.Join(err, l.nic.deregister(r))
	}
	err = errors.Join(err, l.sharing.close(), l.stage.deregister(l.nic), l.nic.close())
	if l.lost != nil {
		err = nil // errors of a lost device say nothing
	}
	err = errors.Join(err, l.stage.unmap())
	for _, fd := range []int{l.watch.epoll, l.table.bell} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// AddRegion adds an application's memory, of which nothing is registered yet.
func (l *Link) AddRegion(r link.Region, session uint32, size uint64) {
	l.regs.chooser.AddRegion(r, session, size)
}

// DropRegion drops the memory of a region that will not be used any more. Its
// registrations end with the next calls of Poll.
func (l *Link) DropRegion(r link.Region) {
	l.dropLender(r)
	l.regs.dropRegion(r)
}

// Gathers reports whether a payload of the ranks' memory will be gathered from its
// memory, and counts it (core.Gatherer). The frame is delivered with the completion of
// its request (settle.go): that needs no message, but its memory is released later than
// with a copy. reuse.Trials tries which of the two is faster, unless gathering is forced.
func (l *Link) Gathers(peer link.Peer, ref link.Ref) bool {
	k := l.regs
	if l.conns[peer] == nil || ref.Len < gatherMin || !k.chooser.Knows(ref.Region) {
		return false
	}
	if l.cfg.Reuse == bootstrap.ReuseAlways {
		return k.gathers(ref)
	}
	s := k.chooser.SessionOf(ref)
	gathers, decided := k.trials.Decided(s, ref.Len)
	if decided && !gathers {
		k.chooser.Copied(ref) // its buffer is not examined
		return false
	}
	if !k.gathers(ref) {
		return false
	}
	if decided || k.trials.Try(s, ref.Len, time.Since(k.start).Nanoseconds()) {
		return true
	}
	k.chooser.Copied(ref)
	return false
}

// Buffers returns how much of a session's memory was copied and how much was gathered.
func (l *Link) Buffers(session uint32) link.BufferCounts { return l.regs.chooser.Buffers(session) }

// EndSession drops the measurements of a session.
func (l *Link) EndSession(session uint32) {
	l.regs.chooser.EndSession(session)
	if int(session) < max(l.cfg.Ranks, 1) {
		l.regs.trials.Forget(reuse.Session(session))
	}
}

// Break ends the connection to peer as a failing network would.
func (l *Link) Break(peer link.Peer) {
	if int(peer) < len(l.conns) && peer >= 0 && l.conns[peer] != nil {
		l.conns[peer].breakPair()
		return
	}
	l.cfg.Stream.Break(peer)
}

// deviceLost ends all connections because the device is lost.
func (l *Link) deviceLost(cause error) {
	if l.lost != nil {
		return
	}
	l.lost = fmt.Errorf("RDMA device %s is lost: %w", l.port.Device, cause)
	l.table.dead.Store(&l.lost)
	l.cfg.Log.Error("RDMA device lost", "device", l.port.Device, "cause", cause)
	for _, fd := range l.nic.events() {
		l.watch.remove(fd) // it stays readable for ever
	}
	for _, d := range l.lending.domains { // these stay readable, too
		for _, fd := range d.nic.events() {
			l.watch.remove(fd)
		}
	}
	for _, c := range l.list {
		c.fail(fmt.Errorf("%w: %w", link.ErrBroken, l.lost))
	}
	if l.cfg.Lost != nil {
		l.cfg.Lost(l.lost)
	}
}
