package ether

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Config is the configuration of a Link.
type Config struct {
	Self      link.Peer
	Peers     int                                                          // number of sidecars of the job
	Listen    netip.AddrPort                                               // address at which this sidecar listens for TCP; the carrier uses the same one
	Addresses []string                                                     // host:port of each peer
	Resolve   func(ctx context.Context, host string) ([]netip.Addr, error) // resolves their hosts
	Pull      bool                                                         // read large messages by packets; otherwise their payloads go by TCP
	Measure   bool                                                         // compare both ways with each peer when it is connected, and pull if that is faster; Pull is false
	Encrypt   bool                                                         // encrypt packets; otherwise they are authenticated only
	Raw       *Raw                                                         // packets go in raw Ethernet frames; nil: by UDP
	Stream    link.Stream                                                  // link to the peers that the carrier does not reach
	Log       *slog.Logger
	Silence   int64        // nanoseconds without an acknowledgement of packets after which a connection is broken
	Clock     func() int64 // monotonic time in nanoseconds, above 0
}

// Stats counts the work of a link.
type Stats struct {
	PacketsIn, PacketsOut uint64
	CarrierIn, CarrierOut uint64 // bytes of packets
	SocketIn, SocketOut   uint64 // bytes of payloads in sockets
	Sends, Receives       uint64 // system calls of the carrier; raw Ethernet has none to receive
	SendErrors            uint64 // batches, or raw frames, that the kernel refused
	Dropped               uint64 // packets that the kernel dropped at the socket or ring, most often for want of room, as far as it was asked
	Lost, Repeated        uint64 // packets that were sent again, and that had come already
	Forged, Replayed, Odd uint64 // packets that do not authenticate, are copies, or are not of a connection
	Placed                uint64 // payloads that sockets carry, from the arrival of their header on
	Pulls, AskedAgain     uint64 // remote reads of this side, and blocks that were asked for again
	PulledBytes, PartsOut uint64 // bytes that pulls have brought, and fragments sent
	Direct                int    // peers that the carrier reached at least once
}

// Limits of one Poll.
const (
	eagerMax       = 64 << 10             // as over TCP
	receiveCalls   = 4                    // calls of carrier.receive: at most 2.2 MiB
	socketInterval = 64                   // polls between two polls of the sockets
	buryTime       = int64(5_000_000_000) // how long the peer of a failed connection is told: longer than it takes to send a sign of life
	lingerTime     = int64(200_000_000)   // how long a forgotten connection waits for acknowledgements
)

// Link is the ether link of one sidecar. It is owned by the engine's goroutine, except for
// Prepare and the Endpoints that it returns.
type Link struct {
	cfg    Config
	memory link.Memory
	at     place            // of the carrier
	conns  []*conn          // by peer; nil: the peer is not reached by the carrier
	table  map[uint32]*conn // by session, those of conns and the ones that are ending
	list   []*conn          // as table
	met    []bool           // by peer: the carrier has reached it
	now    int64

	dirty   []*conn // they may have something to send
	timed   []*conn // they have timers
	next    int64   // the first of these, at the earliest
	readers []*conn // they wait for a payload
	spare   []*conn // memory of the next readers
	fresh   []*conn // joined since the last Poll
	watched []*conn // epoll reports other events of their sockets than the end, or has to
	buried  []*conn // gone, and known in table, so that their peers are told; oldest first
	failed  int

	out    output
	bodies bodies
	reads  reads

	pendingCount atomic.Int32
	abandons     atomic.Bool // abandoned is not empty
	mu           sync.Mutex
	abandoned    []*conn              // of Endpoints that were closed
	pending      map[uint32]*Endpoint // Endpoints that are not joined, by session

	sleeper      sleeper
	polls        int
	budget       int // bytes of payloads that this Poll may still read
	checkSockets bool
	stats        Stats
}

// New returns a link with a UDP socket, or with the packet socket of the configuration.
func New(cfg Config, memory link.Memory) (*Link, error) {
	l := newLink(cfg, memory)
	if err := l.openCarrier(); err != nil {
		return nil, err
	}
	if err := l.sleeper.open(cfg.Stream.FD(), l.out.carrier.descriptor()); err != nil {
		return nil, errors.Join(fmt.Errorf("ether: %w", err), l.release())
	}
	return l, nil
}

func (l *Link) openCarrier() error {
	if l.cfg.Raw != nil {
		r, err := openRaw(l.cfg.Raw, &l.stats)
		if err != nil {
			return err
		}
		l.out.carrier, l.at = r, r.at
		l.reads.credit, l.reads.slot = r.credit()
		l.cfg.Log.Info("packet socket opened", "interface", r.name, "mtu", r.mtu, "slots", r.slots())
		return nil
	}
	u, port, err := openUDP(l.cfg.Listen, &l.stats)
	if err != nil {
		return err
	}
	l.out.carrier, l.at = u, place{port: port}
	l.reads.credit, l.reads.slot = u.credit()
	return nil
}

func newLink(cfg Config, memory link.Memory) *Link {
	l := &Link{
		cfg: cfg, memory: memory, conns: make([]*conn, cfg.Peers), met: make([]bool, cfg.Peers), table: map[uint32]*conn{}, pending: map[uint32]*Endpoint{}, reads: newReads(),
	}
	if cfg.Measure {
		l.reads.trials.results, l.reads.trials.failed = make([]compared, cfg.Peers), map[link.Peer]bool{}
	}
	l.out = newOutput(&l.stats)
	return l
}

// SetMemory replaces the memory given to New, for a caller that implements Memory itself
// and exists only after New.
func (l *Link) SetMemory(m link.Memory) {
	l.memory = m
	l.cfg.Stream.SetMemory(m)
}

// Caps returns what the link can do with a peer that the carrier reaches; PeerCaps says it
// of each peer.
func (l *Link) Caps() link.Caps {
	return link.Caps{Name: "ether", Register: l.cfg.Pull, Read: l.cfg.Pull, GatherMax: 1, EagerMax: eagerMax}
}

// PeerCaps returns what the link can do with a connected peer.
func (l *Link) PeerCaps(peer link.Peer) link.Caps {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Caps()
	}
	caps := l.Caps()
	if l.cfg.Measure {
		caps.Register, caps.Read = c.pulls.reader, c.pulls.reads
	}
	return caps
}

// Abilities returns the abilities of both kinds of connection.
func (l *Link) Abilities() link.Abilities {
	return link.Abilities{
		Attach: l.Attach, PeerCaps: l.PeerCaps, Break: l.Break, Commit: l.commit, Remote: l,
		FD: l.FD, Arm: l.Arm, Bytes: l.Bytes, Direct: l.Direct, Paths: l.Paths,
	}
}

// Stats returns the counters.
func (l *Link) Stats() Stats {
	s := l.stats
	for _, c := range l.list {
		s.SocketIn, s.SocketOut = s.SocketIn+c.pipe.in, s.SocketOut+c.pipe.out
	}
	return s
}

// Direct returns the number of peers that the carrier has reached.
func (l *Link) Direct() int { return l.stats.Direct }

// Carrier returns the name of the carrier of packets, for people.
func (l *Link) Carrier() string { return l.at.text() }

// Raw reports whether packets go in raw Ethernet frames.
func (l *Link) Raw() bool { return l.at.kind == kindRaw }

// Bytes returns the bytes moved so far, those of other connections included.
func (l *Link) Bytes() (in, out uint64) {
	in, out = l.cfg.Stream.Bytes()
	s := l.Stats()
	return in + s.CarrierIn + s.SocketIn, out + s.CarrierOut + s.SocketOut
}

// countDropped asks the kernel for the packets that it has dropped.
func (l *Link) countDropped() {
	if !l.out.closed { // otherwise the descriptor may be another one's
		l.stats.Dropped += l.out.carrier.dropped()
	}
}

// Paths returns the bytes of packets, with those that were dropped, and the bytes of the payloads
// and frames in sockets.
func (l *Link) Paths() []link.Path {
	l.countDropped()
	s := l.Stats()
	in, out := l.cfg.Stream.Bytes()
	list := []link.Path{{Name: l.at.path(), In: s.CarrierIn, Out: s.CarrierOut, Dropped: s.Dropped}, {Name: "tcp", In: s.SocketIn + in, Out: s.SocketOut + out}}
	l.reads.trials.describe(&list[0], &list[1])
	return list
}

// Attach takes ownership of the socket of a peer that the carrier does not reach.
func (l *Link) Attach(peer link.Peer, fd int) error {
	l.forget(peer)
	return l.cfg.Stream.Attach(peer, fd)
}

// Join takes ownership of the socket of a peer, and of the Endpoint that was connected
// while the peer was authenticated. It returns link.ErrLater, and the caller keeps both,
// until a trial of the connection is over.
func (l *Link) Join(peer link.Peer, fd int, e *Endpoint) error {
	if e.trial != nil {
		return l.joinTried(peer, fd, e.trial)
	}
	l.forget(peer)
	l.cfg.Stream.Forget(peer)
	c := e.handOver()
	if c == nil {
		return errors.Join(errors.New("ether: the endpoint is closed"), unix.Close(fd))
	}
	c.peer = peer
	if l.table[c.session] != nil { // the peers connect again
		c.close()
		return errors.Join(fmt.Errorf("ether: connection to pod %d: two connections have drawn the same number", peer), unix.Close(fd))
	}
	l.list, l.table[c.session] = append(l.list, c), c
	if l.cfg.Measure { // what an earlier connection has shown does not hold
		l.reads.trials.results[peer] = compared{met: !e.measures}
	}
	if !e.measures {
		return l.join(c, fd)
	}
	t, err := l.begin(c, fd)
	if err != nil {
		l.remove(c)
		return errors.Join(err, unix.Close(fd))
	}
	e.trial = t
	return link.ErrLater
}

// joinTried continues the trial of a connection, and joins the connection after its end.
func (l *Link) joinTried(peer link.Peer, fd int, t *trial) error {
	over, err := t.run()
	if !over {
		return link.ErrLater
	}
	l.end(t)
	if err != nil {
		l.mu.Lock()
		l.reads.trials.failed[peer] = true
		l.mu.Unlock()
		l.remove(t.c)
		return errors.Join(err, unix.Close(fd))
	}
	r := &t.choice
	l.reads.trials.results[peer] = *r
	t.c.pulls.reads, t.c.pulls.reader = r.pulls, t.peerPulls
	l.cfg.Log.Info("large payloads go by "+l.way(r.pulls), "peer", peer, "bytesPerSecondByPackets", r.byPackets, "byTCP", r.bySocket)
	return l.join(t.c, fd)
}

// way returns the name of the way of large payloads, for people.
func (l *Link) way(pulls bool) string {
	if pulls {
		return l.at.text()
	}
	return "TCP"
}

// join takes a connection of the table into use.
func (l *Link) join(c *conn, fd int) error {
	peer := c.peer
	c.pipe.fd = fd
	err := unix.SetNonblock(fd, true)
	if err == nil {
		c.events = c.wanted()
		err = l.sleeper.watch(unix.EPOLL_CTL_ADD, fd, c.events, c.session)
	}
	if err != nil {
		l.remove(c)
		return fmt.Errorf("ether: connection to pod %d: %w", peer, err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // a socket pair has no such option
	c.joined = true
	l.conns[peer] = c
	l.fresh = append(l.fresh, c)
	if c.err != nil {
		l.failed++
	}
	if !l.met[peer] {
		l.met[peer] = true
		l.stats.Direct++
	}
	l.cfg.Log.Info("small messages go by "+l.at.text(), "peer", peer, "packetBytes", c.bodyMax+headBytes+tagBytes)
	return nil
}

// Forget closes the connection to peer.
func (l *Link) Forget(peer link.Peer) {
	l.forget(peer)
	l.cfg.Stream.Forget(peer)
}

// forget ends a connection of the carrier. Its frames may not have arrived, and a socket is
// closed faster than packets arrive: so it stays until the peer has acknowledged all, or
// for lingerTime.
func (l *Link) forget(peer link.Peer) {
	c := l.conns[peer]
	if c == nil {
		return
	}
	l.conns[peer] = nil
	for _, token := range c.endPulls() {
		l.reads.forgotten = append(l.reads.forgotten, forgotten{peer, token})
	}
	l.now = l.cfg.Clock()
	if c.err != nil {
		l.failed--
		l.bury(c)
		return
	}
	c.ending = l.now + lingerTime
	c.pipe.dst = nil
	c.discard()
	switch {
	case c.pipe.pending(): // in memory that the core may use again
		l.bury(c)
		return
	case c.snd.idle() && c.rcv.owed == 0:
		l.remove(c)
		return
	}
	c.rcv.hurry = true
	c.touch()
}

// remove closes a connection.
func (l *Link) remove(c *conn) {
	if !c.gone {
		delete(l.table, c.session)
		l.drop(c)
	}
}

// bury ends a connection that has failed, or whose payloads are not all written. Its peer
// may wait for the header of a payload that fills its socket, and would not see the end of
// the socket behind it. So the socket is reset, and the peer is told by a packet, and again
// whenever it sends one.
func (l *Link) bury(c *conn) {
	if c.gone {
		return
	}
	_ = unix.SetsockoptLinger(c.pipe.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // a socket pair has no such option
	l.drop(c)
	c.ending = l.now + buryTime
	l.buried = slices.DeleteFunc(l.buried, func(x *conn) bool { // of a peer, the last one is enough
		if x.peer == c.peer {
			delete(l.table, x.session)
		}
		return x.peer == c.peer
	})
	l.buried = append(l.buried, c)
	l.wakeAt(c.ending)
	l.tellEnd(c)
}

// tellEnd tells the peer that a connection has ended.
func (l *Link) tellEnd(c *conn) {
	l.out.one = c.tx.seal(l.out.one[:0], kindEnd, c.remote, nil)
	_ = l.out.carrier.sendOne(&c.to, l.out.one) // it is repeated when the peer sends something
}

// exhume forgets connections whose peers have been told long enough.
func (l *Link) exhume() {
	for len(l.buried) > 0 && l.now >= l.buried[0].ending {
		delete(l.table, l.buried[0].session)
		l.buried = l.buried[1:]
	}
	if len(l.buried) > 0 {
		l.wakeAt(l.buried[0].ending)
	}
}

// drop releases what a connection has.
func (l *Link) drop(c *conn) {
	for i, x := range l.list {
		if x == c {
			l.list = append(l.list[:i], l.list[i+1:]...)
			break
		}
	}
	l.stats.SocketIn, l.stats.SocketOut = l.stats.SocketIn+c.pipe.in, l.stats.SocketOut+c.pipe.out
	c.close()
}

// Break ends the connection to peer as a failing network would.
func (l *Link) Break(peer link.Peer) {
	if peer >= 0 && int(peer) < len(l.conns) && l.conns[peer] != nil {
		_ = unix.Shutdown(l.conns[peer].pipe.fd, unix.SHUT_RDWR) // an error means that it is broken already
		return
	}
	l.cfg.Stream.Break(peer)
}

// Close ends all connections, after their last packets have been acknowledged, or after
// lingerTime.
func (l *Link) Close() error {
	for p := range l.conns {
		l.forget(link.Peer(p))
	}
	for len(l.reads.trials.list) > 0 {
		l.abandon(l.reads.trials.list[0])
	}
	for len(l.list) > 0 {
		l.now = l.cfg.Clock()
		l.receive(nil) // nothing is handed over any more
		l.tick()
		l.commit()
	}
	l.countDropped()
	l.out.closed = true
	if s := l.Stats(); s.Direct > 0 {
		l.cfg.Log.Info("used "+l.at.text(), "peers", s.Direct, "packetsIn", s.PacketsIn, "packetsOut", s.PacketsOut, "sentAgain", s.Lost, "dropped", s.Dropped, "forged", s.Forged, "replayed", s.Replayed,
			"bytesByPackets", s.CarrierIn+s.CarrierOut, "bytesByTCP", s.SocketIn+s.SocketOut)
	}
	return errors.Join(l.cfg.Stream.Close(), l.release())
}

func (l *Link) release() error { return errors.Join(l.sleeper.close(), l.out.carrier.close()) }

// Post adds frames to packets, or passes them to the stream.
func (l *Link) Post(peer link.Peer, frames []*link.Frame) int {
	c := l.conns[peer]
	if c == nil {
		return l.cfg.Stream.Post(peer, frames)
	}
	n := c.sendSome(frames)
	if n == 0 && len(frames) > 0 { // what is collected may be what there is no room for
		l.commit()
		n = c.sendSome(frames)
	}
	return n
}

// sendSome adds frames to packets, as far as there is room.
func (c *conn) sendSome(frames []*link.Frame) (n int) {
	for c.err == nil && n < len(frames) && c.send(frames[n]) {
		n++
	}
	if n > 0 {
		c.touch()
	}
	return n
}

// reading notes that a connection waits for a payload.
func (l *Link) reading(c *conn) {
	if !c.reads {
		c.reads = true
		l.readers = append(l.readers, c)
	}
}

var errForgotten = fmt.Errorf("%w: forgotten", link.ErrBroken)

var errSilent = fmt.Errorf("%w: no packet was acknowledged for too long", link.ErrBroken)

var errKeyUsed = fmt.Errorf("%w: the key has protected %d packets, and is replaced", link.ErrBroken, uint64(counterMax))
