// Package core implements all protocols of the sidecar, as one state machine without clock,
// goroutine, lock or I/O. Events come in as method calls that carry the time; actions go out through
// Ports. One goroutine, the turn of the engine, calls all methods.
//
// The state is in the rooms below: core/ranks, core/channel, core/p2p, core/collective and
// core/onesided. This package hands descriptors (submit.go) and frames (frames.go) to them, and has
// what concerns all of them: failures (failure.go, spread.go), departures of ranks and peers
// (departure.go, goodbye.go), generations of attachments (generation.go), and the ends of sessions
// (ending.go). Advance (chores.go) runs what takes more than one step.
//
// The rooms call this package by interfaces of theirs only: channel.Handler (frames.go) and
// onesided.Channel (accesses.go), and by the function that ranks calls when a session is gone.
//
// The protocols are those of api/wire/PROTOCOL.md; sections cited as P§ are
// its sections, those cited as L§ are of api/shm/LAYOUT.md.
package core

import (
	"cmp"
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/collective"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// SessionID numbers the attached applications of this sidecar; numbers are
// used again only after Ports.Freed.
type SessionID = ranks.SessionID

// Pieces are the allocated parts of an arena.
type Pieces = ranks.Pieces

// Ports are the actions of the core. The engine implements them.
type Ports interface {
	link.Memory
	// Complete publishes d to the application.
	Complete(s SessionID, d *shm.Descriptor)
	// Retire notifies the application that n more silent sends have ended.
	Retire(s SessionID, n uint64)
	// Failed stores the reason of a failure where the application finds it, before OpFailed.
	Failed(s SessionID, text string)
	// Freed reports that nothing refers to the memory of a detached session any more: it may be
	// unmapped, and the number used again.
	Freed(s SessionID)
	// Connect asks for a connection to peer; LinkUp or LinkFailed follows.
	Connect(peer link.Peer)
	// Disconnect closes the connection to peer.
	Disconnect(peer link.Peer)
	// Note puts a protocol event into the flight recorder.
	Note(kind NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64)
	Remote
}

// Remote is the part of Ports that serves links with remote memory access.
type Remote interface {
	Register(peer link.Peer, ref link.Ref) (link.Key, error)
	// Expose is Register for a window: its registration is shared with no other memory, so that
	// only Deregister ends it.
	Expose(peer link.Peer, ref link.Ref) (link.Key, error)
	// Discard gives memory of RegionPool back to the kernel. Its content is lost.
	Discard(ref link.Ref)
	// Deregister ends a registration whose operation has ended early, at once.
	Deregister(peer link.Peer, key link.Key)
	// Release ends the use of a registration whose operation has ended in order: the peer has
	// confirmed that it does not access the memory any more. The link may keep the
	// registration.
	Release(peer link.Peer, key link.Key)
	Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error
	Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error
}

// Lender knows the memory that applications have registered themselves, and Gatherer which buffers
// are used often.
type (
	Lender   = p2p.Lender
	Gatherer = p2p.Gatherer
)

// Folder combines long ranges of collectives outside of the turns.
type Folder = collective.Folder

// Regions that every core has.
const (
	RegionNone                = channel.RegionNone
	RegionPool                = p2p.RegionPool
	RegionDiscard             = channel.RegionDiscard
	RegionRings               = channel.RegionRings
	RegionFirst   link.Region = 4 // first number for sessions
)

// Config fixes a core for its life. Zero fields take the defaults named.
type Config struct {
	Self  link.Peer // this sidecar
	PodOf []int32   // pod of each world rank; its length is the job's size
	Pods  int

	// Spare is how many bytes the sidecar may keep for its ranks and peers in addition to the
	// formula (memory.RanksKept, memory.PeersKept, memory.GroupsMax).
	Spare int64

	EagerBytes    uint64               // largest eager message; default and most 64 KiB
	Answers       func(link.Peer) bool `json:"-"` // reports whether a silent peer's machine answers (channel.Config); nil: not known
	Gatherer      Gatherer             // is asked before a small message of an arena is copied; nil: each is
	Folder        Folder               // nil: collectives combine in turns
	Caster        link.Caster          // takes writes to rings whose end is not reported; nil: each end is reported
	FragmentBytes uint32               // payload of a Data frame; default 256 KiB, most wire.FrameMax
	CreditBytes   uint64               // eager bytes in flight from one peer, at most; default 1 MiB
	CreditFirst   uint64               // the same at first; default CreditBytes, which does not change
	CreditBudget  uint64               // bytes by which all peers together may have more than CreditFirst
	Heartbeat     time.Duration        // silence after which a heartbeat is sent; default 500 ms
	DeadAfter     time.Duration        // silence, or failed reconnecting, after which a peer is dead; default 4.5 s
	StartWithin   time.Duration        // how long a peer may take to be reached for the first time; default 60 s
	HungAfter     time.Duration        // silence after which a peer is dead although its machine Answers; default DeadAfter
	Rendezvous    rendezvous.Protocol  // how large messages travel (DESIGN §5)
	Channel       eagerring.Kind       // how small messages go by remote write; the same on all sidecars
	Collectives   []coll.Rule          `json:",omitempty"` // the job's choice of algorithms; the same on all sidecars
	Schedules     uint64               `json:",omitempty"` // coll.Schedules: the job ends if ranks in pods with another number are in a collective; 0: not compared, as in a simulation
	FastPeers     int                  // most peers with a ring for small frames, where the link writes remotely; default 64, negative: none
	Seed          uint64               // seed of the matching tables' hash

	limits Limits // Within
}

func (c *Config) setDefaults() error {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.Heartbeat, 500*time.Millisecond)
	def(&c.DeadAfter, 4500*time.Millisecond)
	def(&c.HungAfter, c.DeadAfter)
	def(&c.StartWithin, time.Minute)
	if c.EagerBytes == 0 || c.EagerBytes > p2p.EagerLimit {
		c.EagerBytes = p2p.EagerLimit
	}
	if c.FragmentBytes == 0 {
		c.FragmentBytes = 256 << 10
	}
	c.CreditBytes = cmp.Or(c.CreditBytes, creditDefault)
	c.limits.setDefaults(c.EagerBytes)
	switch {
	case len(c.PodOf) == 0 || c.Pods < 1 || int(c.Self) >= c.Pods || c.Self < 0:
		return fmt.Errorf("core: sidecar %d of %d pods with %d ranks makes no job", c.Self, c.Pods, len(c.PodOf))
	case c.FragmentBytes > wire.FrameMax || c.FragmentBytes < 64:
		return fmt.Errorf("core: fragments of %d bytes, want 64 to %d", c.FragmentBytes, wire.FrameMax)
	case c.CreditBytes < 2*p2p.EagerLimit || c.CreditBytes > 1<<30:
		return fmt.Errorf("core: credit of %d bytes, want %d to %d", c.CreditBytes, 2*p2p.EagerLimit, 1<<30)
	case c.CreditFirst > c.CreditBytes || c.widens() && c.CreditFirst < wire.CreditUnit:
		return fmt.Errorf("core: first credit of %d bytes, want %d to %d", c.CreditFirst, wire.CreditUnit, c.CreditBytes)
	}
	for r, p := range c.PodOf {
		if p < 0 || int(p) >= c.Pods {
			return fmt.Errorf("core: rank %d is in pod %d of %d", r, p, c.Pods)
		}
	}
	return nil
}

// fastPeers returns the number of peers with a ring.
func (c *Config) fastPeers() int {
	switch {
	case c.FastPeers < 0:
		return 0
	case c.FastPeers == 0:
		return min(64, c.Pods)
	}
	return min(c.FastPeers, c.Pods)
}

// channel returns the configuration of the streams of frames.
func (c *Config) channel() channel.Config {
	first, last := len(c.PodOf), 0
	for r, pod := range c.PodOf {
		if link.Peer(pod) == c.Self {
			first, last = min(first, r), max(last, r)
		}
	}
	return channel.Config{
		Self: c.Self, Peers: c.Pods, First: uint32(min(first, last)), Last: uint32(last),
		CreditBytes: c.CreditBytes, CreditFirst: cmp.Or(c.CreditFirst, c.CreditBytes), Widens: c.widens(), CreditBudget: c.CreditBudget, Heartbeat: c.Heartbeat, DeadAfter: c.DeadAfter, StartWithin: c.StartWithin, HungAfter: c.HungAfter, Answers: c.Answers, AckDelay: c.limits.AckDelay,
		FragmentBytes: uint64(c.FragmentBytes), AheadBytes: c.limits.AheadBytes,
		Rings: c.Channel, FastPeers: c.fastPeers(), Caster: c.Caster, LookAfter: c.limits.LookAfter, Schedules: c.Schedules,
	}
}

// RingBytes returns the number of bytes that RegionRings needs.
func (c Config) RingBytes() uint64 {
	rings := channel.Config{Rings: c.Channel, FastPeers: c.fastPeers()}
	return rings.RingBytes()
}

const creditDefault = 1 << 20

// widens reports whether windows of credit are widened and narrowed, and their memory is that of
// the credit (decision 035).
func (c *Config) widens() bool { return c.CreditFirst > 0 }

// creditOfAll returns the most credit that all peers have at a time, in bytes.
func (c *Config) creditOfAll() uint64 {
	first, pods := cmp.Or(c.CreditFirst, c.CreditBytes), uint64(c.Pods)
	return min(pods*first+c.CreditBudget, pods*c.CreditBytes)
}

// PoolBytes returns the number of bytes of address space that RegionPool needs.
func (c Config) PoolBytes() uint64 {
	c.CreditBytes = cmp.Or(c.CreditBytes, creditDefault)
	return p2p.PoolBytes(c.Pods, c.creditOfAll())
}

// Core is the state machine. It is owned by the turn goroutine.
type Core struct {
	cfg   Config
	ports Ports
	now   int64 // nanoseconds, as of the current event

	peers     []peer
	channel   *channel.Room
	endpoints []*endpoint // endpoints by world rank; nil: hosted elsewhere
	hosted    []*endpoint
	job       *ranks.Job
	ranks     *ranks.Sessions
	sessions  []*session // sessions by number; nil: none

	p2p         *p2p.Room
	collectives *collective.Room
	onesided    *onesided.Room

	fail    *Failure
	left    bool            // all ranks of this sidecar have left, and its peers were notified
	gen     uint64          // generation of attachments (generation.go), from 1
	wanted  uint64          // the highest generation that a peer has begun
	leaving bool            // no rank attaches any more
	ofRanks ranks.Allowance // bytes and requests of the ranks here
	ofPeers ranks.Allowance // bytes that peers have sent, and answers to them

	// Work that takes longer than an event: Advance does it in steps.
	endings []ending
	parting parting
}

// New makes a core for one sidecar of a job.
func New(cfg Config, ports Ports) (*Core, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	c := &Core{cfg: cfg, ports: ports, gen: 1}
	c.setAllowances()
	c.ranks = ranks.NewSessions(ports, &c.ofRanks, c.sessionGone)
	c.job = ranks.NewJob(cfg.PodOf, cfg.Pods)
	c.channel = channel.New(c.cfg.channel(), ports, upper{c}, &c.ofPeers)
	c.peers = make([]peer, cfg.Pods)
	for i := range c.peers {
		c.peers[i].init(c.channel.Peer(link.Peer(i)), c.job.Pod(link.Peer(i)))
	}
	for r, pod := range cfg.PodOf {
		p := &c.peers[pod]
		if p.ranks == 0 {
			p.first = uint32(r)
		}
		p.last = uint32(r)
		p.ranks++
	}
	c.endpoints = make([]*endpoint, len(cfg.PodOf))
	for r, p := range cfg.PodOf {
		if link.Peer(p) == cfg.Self {
			e := &endpoint{rank: uint32(r), index: len(c.hosted)}
			c.endpoints[r] = e
			c.hosted = append(c.hosted, e)
		}
	}
	if len(c.hosted) == 0 {
		return nil, fmt.Errorf("core: no rank of the job is in pod %d", cfg.Self)
	}
	c.openMessages()
	if err := c.openCollectives(); err != nil {
		return nil, err
	}
	c.openOneSided()
	return c, nil
}

// Effort returns the bytes of lists that descriptors have made the core read, and the cost of the
// searches that they have caused. A caller that takes many descriptors in a turn bounds them by it.
func (c *Core) Effort() uint64 { return c.p2p.Effort() + c.collectives.Effort() + c.onesided.Effort() }

// at sets the time of the current event.
func (c *Core) at(now int64) {
	c.now = now
	c.channel.At(now)
}

// peerOf returns the sidecar that hosts a world rank.
// Preconditions: rank is below the job's size.
func (c *Core) peerOf(rank uint32) *peer { return &c.peers[c.job.PodOf(rank)] }

// Ranks returns the job's size.
func (c *Core) Ranks() int { return c.job.Ranks() }

// Stats returns the counters as they stand.
func (c *Core) Stats() Stats {
	var s Stats
	m := c.p2p.Stats()
	s.Eager, s.Get, s.Put, s.Stream, s.Local, s.Remote, s.Sizes = m.Eager, m.Get, m.Put, m.Stream, m.Local, m.Remote, m.Sizes
	s.Offers, s.Offered, s.Collisions, s.Expected, s.Unexpected, s.RemoteErrors = m.Offers, m.Offered, m.Collisions, m.Expected, m.Unexpected, m.RemoteErrors
	s.UnexpectedBytes, s.UnexpectedPeak, s.Sends, s.Receives, s.Parked, s.Probes = m.UnexpectedBytes, m.UnexpectedPeak, m.Sends, m.Receives, m.Parked, m.Probes
	s.Unregistered = m.Unregistered
	one := c.onesided.Stats()
	s.OneSided, s.RemotePut, s.RemoteGet, s.Exposed = one.OneSided, one.RemotePut, one.RemoteGet, one.Exposed
	s.Unregistered += one.Unregistered
	s.Accesses, s.Reachable = one.Accesses, one.Reachable
	colls := c.collectives.Stats()
	s.Collective, s.Collectives = Traffic{Messages: colls.Begun, Bytes: colls.Bytes}, colls.Open
	s.Algorithms = colls.By
	ch := c.channel.Stats()
	s.FramesIn, s.FramesOut, s.RingFrames, s.RingTaken, s.CreditStalls = ch.FramesIn, ch.FramesOut, ch.RingFrames, ch.RingTaken, ch.CreditStalls
	s.Discards = m.Discards
	s.Widened, s.Asked, s.Narrowed = ch.Widened, ch.Asked, ch.Narrowed
	s.Breaks, s.Reconnects, s.CreditUsed, s.CreditTaken, s.CreditReturned, s.Rings, s.Peers = ch.Breaks, ch.Reconnects, ch.CreditUsed, ch.CreditTaken, ch.CreditReturned, ch.Rings, ch.Peers
	s.Unregistered += ch.Unregistered
	return s
}
