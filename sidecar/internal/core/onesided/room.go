// Package onesided runs the one-sided operations of the ranks that this sidecar hosts, and
// the accesses of other ranks to their windows. It is a room of the core: the turn goroutine
// owns it, and it has no clock and no I/O.
//
// The room owns both sides of an access. On the origin's side these are the operations that
// have not ended (origin), their queues, one for each rank and peer, and the known windows
// of peers (view, package expose). On the target's side these are the windows with the
// errors that their next flush reports, their locks with the waiting ranks, and their epochs
// (package epoch); the memory that peers access (exposed), which outlives its window until
// no peer uses it; and the gets that are being answered.
//
// An operation has these states: queued, while the peer's link is full, a bound of
// requests.go, reach.go or gets.go is reached, or operations of its rank that it has to
// follow have not ended; remote, while the link reads or writes (if that fails, the access
// is repeated in frames); in frames, until the last one is emitted; waiting for an answer or
// acknowledgement; ended. A get that ends before its answer is complete is an orphan until
// then. A window is open or closed: FailWaiters then answers the ranks that wait for its
// lock, in bounded steps, and its memory is released when all peers that can be reached have
// confirmed that they no longer access it, or the job has failed.
//
// Core submits descriptors (Submit, SubmitWindow, FreeWindow); delivers frames (Frame) and,
// for payloads that a link reads into memory, Place and then Placed or Dropped; and the ends
// of remote operations (Accessed). It calls Feed for a queue's turn, Grant and FailWaiters
// for locks. When a session closes it calls End for each request, CloseWindows and
// SessionGone. It reports a lost peer with Drop or PeerLost, a payload that is sent again or
// not any more with Divert and Dropped, acknowledged memory with Released, and a rank that
// has left with RankLeft, after which it calls SweepAccesses, SweepExposures and SweepLocks,
// each bounded, in the order that core decides. Package ranks keeps the requests and the memory of applications and the
// state of the job. Channel has the streams of frames and the links; core implements it by
// packages channel and p2p.
//
//	origin                                    target
//	Submit     claims the request; holds the session, if it names memory
//	access     Channel.Queue -> Feed, if others wait
//	first access of a peer's window that may be remote (not a small put or an accumulate):
//	  Emit(Expose, Put ...) ----------------> Frame: Ports.Expose; Place, Placed: the window
//	  Frame <------------------------------- Answer(Exposed)
//	  Released: acknowledged
//	from then on:
//	  Channel.Access =======================> (no turn of the target)
//	  Accessed
//	a lock, a fetch, a flush (no frame, if all accesses were remote):
//	  Emit(Flush ...) ----------------------> Frame: after all earlier frames
//	  Frame <------------------------------- Answer(Flushed ...); a lock may be granted later
//	end        Sessions.Complete, Unhold
//	                                          FreeWindow: Emit(Conceal) to each holder
//	Frame; after the last Accessed:
//	  Answer(Concealed) --------------------> Frame: Ports.Deregister, Sessions.Finish
package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// Config is the configuration of a Room.
type Config struct {
	Self        link.Peer // this sidecar
	PodOf       []int32   // pod of each world rank
	First       []uint32  // lowest rank of each pod
	Fragment    uint64    // bytes of a large access in one frame to a peer
	OwnFragment uint64    // the same to a rank of this sidecar
}

// Ports are the services of the engine for the memory of applications.
type Ports interface {
	link.Memory
	// Expose registers the memory of a window, and no memory around it: the key gives access
	// to all that is registered.
	Expose(peer link.Peer, ref link.Ref) (link.Key, error)
	// Deregister ends a registration at once: its key is invalid from then on.
	Deregister(peer link.Peer, key link.Key)
}

// Room holds the windows of a sidecar's ranks and their accesses to windows.
type Room struct {
	cfg      Config
	ports    Ports
	sessions *ranks.Sessions
	channel  Channel
	job      *ranks.Job

	peers   []*peer   // peers by pod; nil: no operation so far
	members []*member // members by session; nil: not attached
	hosts   []*host   // hosts by world rank; nil: hosted elsewhere
	hosted  []*host

	origins    ranks.Table[origin]
	views      ranks.Table[view]    // windows of peers
	exposures  ranks.Table[exposed] // windows here that peers have accessed
	servedGets ranks.Table[servedGet]
	windows    []*window          // windows of all hosted ranks
	granting   []*window          // windows whose waiters exceeded grantsAStep
	closing    []*window          // closed windows with waiters that have no answer yet
	left       queue.FIFO[uint32] // ranks that have left; SweepLocks releases their locks
	leftAt     int                // index in windows where SweepLocks continues for the first of them

	spareAccesses []*accessQueue
	effort        uint64 // work done for descriptors, in bytes
	stats         Stats
}

// peer has the operations between a peer and this sidecar.
type peer struct {
	id        link.Peer
	accesses  []*accessQueue  // operations that wait for their turn
	views     views           // windows of its ranks
	gets      int             // gets that it has not answered completely, at most GetWindow
	served    int             // its gets here, until it has acknowledged the last frame
	locks     int             // locks that its ranks wait for, at most LockLimit
	missed    missed          // accesses of its ranks to windows that do not exist
	requests  int             // fetches and flushes that it has not answered, at most requestWindow
	lockWaits []int64         // locks there that each hosted rank waits for; nil: none has asked for one
	lockBound ranks.Allowance // LockLimit of all of them
}

// host is a rank that this sidecar hosts.
type host struct {
	rank    uint32
	index   int // among the hosted ranks
	wins    map[uint32]*window
	closing []uint32 // windows that CloseWindows has not closed, by number
}

// member is an attached application.
type member struct {
	session *ranks.Session
	host    *host
	flushes int // open flushes of all peers, at most flushWindow
}

// Stats are counters since the room's start; the last group are levels.
type Stats struct {
	OneSided             ranks.Traffic // accesses to windows of this sidecar
	RemotePut, RemoteGet ranks.Traffic // remote operations that this sidecar has started
	Exposed              uint64        // registrations of windows
	Unregistered         uint64        // registrations of windows that were refused, and remote operations that could not be started

	Accesses  int // operations that have not ended
	Reachable int // registered windows
}

// New returns a Room without applications.
func New(cfg Config, ports Ports, sessions *ranks.Sessions, channel Channel, job *ranks.Job) *Room {
	r := &Room{cfg: cfg, ports: ports, sessions: sessions, channel: channel, job: job}
	r.peers, r.hosts = make([]*peer, len(cfg.First)), make([]*host, len(cfg.PodOf))
	for rank, pod := range cfg.PodOf {
		if link.Peer(pod) == cfg.Self {
			h := &host{rank: uint32(rank), index: len(r.hosted)}
			r.hosts[rank], r.hosted = h, append(r.hosted, h)
		}
	}
	return r
}

// peer returns the record of a peer.
func (r *Room) peer(id link.Peer) *peer {
	p := r.peers[id]
	if p == nil {
		p = &peer{id: id}
		r.peers[id] = p
	}
	return p
}

// podOf returns the sidecar that hosts a world rank of the job.
func (r *Room) podOf(rank uint32) link.Peer { return link.Peer(r.cfg.PodOf[rank]) }

func (r *Room) peerOf(rank uint32) *peer { return r.peer(r.podOf(rank)) }

// fragment returns the bytes of a large access in one frame to p.
func (r *Room) fragment(p *peer) uint64 {
	if p.id == r.cfg.Self {
		return r.cfg.OwnFragment
	}
	return r.cfg.Fragment
}

// Attach adds an application.
func (r *Room) Attach(s *ranks.Session) {
	for int(s.ID()) >= len(r.members) {
		r.members = append(r.members, nil)
	}
	r.members[s.ID()] = &member{session: s, host: r.hosts[s.Rank()]}
}

// SessionGone removes an application, whose operations must have ended.
func (r *Room) SessionGone(s ranks.SessionID) { r.members[s] = nil }

// Renew begins another generation of attachments. No operation may be open.
func (r *Room) Renew() {
	for _, h := range r.hosted {
		h.wins, h.closing = nil, nil
	}
	r.left, r.leftAt = queue.FIFO[uint32]{}, 0
	for _, p := range r.peers {
		if p == nil {
			continue
		}
		p.missed = missed{}
		if p.id == r.cfg.Self {
			continue
		}
		r.dropViews(p)
		r.channel.Refund(p.id, int64(p.locks)*memory.LockCost)
		p.gets, p.served, p.locks, p.requests = 0, 0, 0, 0
		p.lockWaits, p.lockBound = nil, ranks.Allowance{}
	}
}

// Pending reports whether Grant or FailWaiters has work.
func (r *Room) Pending() bool { return len(r.granting) > 0 || r.Closing() }

// Closing reports whether FailWaiters has work.
func (r *Room) Closing() bool { return len(r.closing) > 0 }

// Busy reports whether an operation is open on either side.
func (r *Room) Busy() bool {
	return r.origins.Len()+r.exposures.Len()+r.servedGets.Len() > 0 || r.Pending()
}

// Effort returns the work that the room has done for descriptors, in bytes that it could
// have copied in that time.
func (r *Room) Effort() uint64 { return r.effort }

// Stats returns the counters as they stand.
func (r *Room) Stats() Stats {
	s := r.stats
	s.Accesses = r.origins.Len()
	return s
}
