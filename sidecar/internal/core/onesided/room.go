// Package onesided carries out the one-sided operations of the ranks that this sidecar hosts,
// and those of others on their windows. It is a room of the core: owned by the turn goroutine,
// without clock or I/O.
//
// The room owns both sides of an access. At the side of the origin these are the operations
// that have not ended (origin), the queues of those that wait for their turn at a peer, one for
// each rank, and what is known of the windows of peers (view, package expose). At the side of
// the target these are the windows, with the mistakes that their next flush tells, their locks
// and who waits for them, and their epochs (package epoch); the memory that peers reach or write
// to (exposed), which outlives its window until nobody does any more; and the gets that are
// being answered. An operation is queued while its peer has too much to do, or others of its
// rank wait there; then it is under way as a remote operation, or as frames, of which the last
// makes it emitted; it waits until what it has asked for is answered, or acknowledged; and it
// has ended. A get whose application has left is an orphan until its answer is whole. A
// window is open, or gone: then its waiters are told in steps (FailWaiters), and its memory is
// its rank's when all who reach for it have said that they do not any more. Above, core submits
// descriptors, delivers frames (Frame; Place, Placed and Dropped for payloads that are read into
// memory) and the ends of remote operations (Accessed), gives the room its turns (Feed for what
// is queued at a peer, Grant and FailWaiters for locks), ends the requests and windows of a
// rank that goes (End, one request a step; CloseWindows; SessionGone when nothing refers to its
// session any more) and says who is lost (PeerLost) or has left (RankLeft, after which
// SweepAccesses, SweepExposures and SweepLocks look at a bounded number of states each): their
// order is the top's. Below, core/ranks keeps the requests and the memory of applications, and
// what is known of the job; the streams of frames and the links are behind the interface Channel,
// which core implements by core/channel and core/p2p.
//
//	origin                                    target
//	Submit     claims the request, holds the memory
//	access     Channel.Queue -> Feed, if others wait
//	first access of a window:
//	  Emit(Expose, Put ...) ----------------> Frame: Ports.Expose; Place, Placed: the window
//	  Frame <------------------------------- Answer(Exposed)
//	  Released: acknowledged
//	from then on:
//	  Channel.Access =======================> (no turn of the target)
//	  Accessed
//	a flush, a lock, a fetch:
//	  Emit(Flush ...) ----------------------> Frame: in order, behind all before it
//	  Frame <------------------------------- Answer(Flushed ...); a lock is granted later, maybe
//	end        Sessions.Complete, Unhold
//	                                          FreeWindow: Emit(Conceal) to all who know it
//	Frame; when the last Accessed is there:
//	  Answer(Concealed) --------------------> Frame: Ports.Deregister, Sessions.Finish
package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// Config fixes a room for its life.
type Config struct {
	Self        link.Peer // this sidecar
	PodOf       []int32   // pod of each world rank
	First       []uint32  // of each pod, the lowest of its ranks
	Fragment    uint64    // bytes of a large access in one frame
	OwnFragment uint64    // the same within this sidecar
}

// Ports is what the room needs of the memory of applications.
type Ports interface {
	link.Memory
	// Expose registers a window's memory, with no other memory.
	Expose(peer link.Peer, ref link.Ref) (link.Key, error)
	// Deregister ends that at once.
	Deregister(peer link.Peer, key link.Key)
}

// Room holds the windows of a sidecar's ranks, and their accesses to those of others.
type Room struct {
	cfg      Config
	ports    Ports
	sessions *ranks.Sessions
	channel  Channel
	job      *ranks.Job

	peers   []*peer   // by pod; nil: nothing was ever between it and here
	members []*member // by session; nil: none
	hosts   []*host   // by world rank; nil: hosted elsewhere
	hosted  []*host

	origins   ranks.Table[origin]
	views     ranks.Table[view]    // windows of peers
	exposures ranks.Table[exposed] // windows here that peers reach
	gots      ranks.Table[got]
	windows   []*window          // of all ranks of here
	granting  []*window          // with more waiters to be granted a lock
	closing   []*window          // gone, with waiters that are still to be told
	left      queue.FIFO[uint32] // ranks that have left, and may hold locks
	leftAt    int                // of windows, that is looked at next for the first of them

	spareAccesses []*accessQueue
	effort        uint64 // steps that descriptors made it do, in bytes
	stats         Stats
}

// peer is what is between a peer and this sidecar.
type peer struct {
	id       link.Peer
	accesses []*accessQueue // operations that wait for their turn there
	views    views          // windows of its ranks that are reached remotely
	gets     int            // gets that it has not answered wholly
	served   int            // its gets that are being answered, until it has acknowledged the last frame
	locks    int            // locks that its ranks wait for
	missed   missed         // accesses of its ranks to windows that are not here
	asks     int            // requests that it has not answered, and answers at once (asks.go)
	waits    int            // locks that ranks of here wait for there
}

// host is a rank of here.
type host struct {
	rank  uint32
	index int // among the ranks of here
	wins  map[uint32]*window
}

// member is an attached application.
type member struct {
	session *ranks.Session
	host    *host
	flushes int // flushes of all peers under way
}

// Stats are counters since the room's start; the last group are levels.
type Stats struct {
	OneSided             ranks.Traffic // of accesses to windows of here
	RemotePut, RemoteGet ranks.Traffic // accesses by remote operation, at the side that has started them
	Exposed              uint64        // windows that were registered for peers
	Unregistered         uint64        // registrations and remote operations that were refused

	Accesses  int // operations that have not ended
	Reachable int // windows that are registered now
}

// New makes a room without applications.
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

// peer is the record of a peer.
func (r *Room) peer(id link.Peer) *peer {
	p := r.peers[id]
	if p == nil {
		p = &peer{id: id}
		r.peers[id] = p
	}
	return p
}

// podOf is the sidecar that hosts a world rank. Preconditions: the job has it.
func (r *Room) podOf(rank uint32) link.Peer { return link.Peer(r.cfg.PodOf[rank]) }

func (r *Room) peerOf(rank uint32) *peer { return r.peer(r.podOf(rank)) }

// fragment is how much of a large access goes in one frame.
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

// SessionGone forgets an application. Preconditions: its operations have ended.
func (r *Room) SessionGone(s ranks.SessionID) { r.members[s] = nil }

// Renew begins another generation of attachments. Preconditions: nothing is open.
func (r *Room) Renew() {
	for _, h := range r.hosted {
		h.wins = nil
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
		p.gets, p.served, p.locks, p.asks, p.waits = 0, 0, 0, 0, 0
	}
}

// Pending reports that Advance or FailWaiters has something to do.
func (r *Room) Pending() bool { return len(r.granting) > 0 || r.Closing() }

// Closing reports that there are waiters of windows that are gone who are still to be told.
func (r *Room) Closing() bool { return len(r.closing) > 0 }

// Busy reports that something is open, at either side.
func (r *Room) Busy() bool {
	return r.origins.Len()+r.exposures.Len()+r.gots.Len() > 0 || r.Pending()
}

// Effort counts the steps that descriptors have made the room do, in bytes that it would have
// read meanwhile.
func (r *Room) Effort() uint64 { return r.effort }

// Stats returns the counters as they stand.
func (r *Room) Stats() Stats {
	s := r.stats
	s.Accesses = r.origins.Len()
	return s
}
