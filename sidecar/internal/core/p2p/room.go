package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// RegionPool is the memory of unexpected messages, and of copies of small ones: PoolBytes of
// address space.
const RegionPool link.Region = 1

// Ports are the services of the engine for the room.
type Ports interface {
	link.Memory
	// Retire notifies the application that n more silent sends are taken over.
	Retire(s ranks.SessionID, n uint64)
	Note(kind ranks.NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64)
	Register(peer link.Peer, ref link.Ref) (link.Key, error)
	Deregister(peer link.Peer, key link.Key)
	// Discard gives memory of RegionPool back to the kernel. Its content is lost.
	Discard(ref link.Ref)
	Release(peer link.Peer, key link.Key)
	Read(peer link.Peer, token uint64, dst link.Ref, src link.Key) error
	Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error
}

// Lender knows the memory that applications have registered themselves (link.Lender).
type Lender interface {
	Lend(region link.Region, number uint32, m link.Lent) error
	Reclaim(region link.Region, number uint32)
}

// Gatherer is a link that sends from registered memory, and knows which buffers are
// used so often that it gathers from them (docs/reuse.md).
type Gatherer interface {
	// Gathers counts a use of an application's memory, and reports whether the link
	// will gather a frame's payload from it: the copy that ends a send at once would be
	// all that is lost by that.
	Gathers(peer link.Peer, ref link.Ref) bool
}

// Collectives owns the messages that are no request of an application (Message). Each of them
// ends with one Done, maybe before Send or Receive returns.
type Collectives interface {
	// Opened reports the MessageID of a message of a collective that has a state of its own.
	Opened(collective uint64, m MessageID)
	// Matched reports the message that a receive of a collective has matched.
	Matched(collective uint64, source uint32, data ranks.Immediate, length, capacity uint64)
	// Parked reports that a message of a collective has arrived for which there is no receive.
	Parked(s ranks.SessionID, context uint32, tag uint64, source uint32, length uint64, data ranks.Immediate)
	Done(collective uint64, status shm.Status)
}

// Config fixes a room for its life.
type Config struct {
	Hosted      []uint32 // ranks of this sidecar
	Pods        int
	CreditBytes uint64              // eager bytes in flight from all peers
	Paged       bool                // CreditBytes also bounds the memory of unexpected messages (pages.go)
	WarmBytes   uint64              // free memory that is kept then
	EagerBytes  uint64              // largest eager message
	CopyBytes   uint64              // largest eager message that is copied, so that its send ends at once
	Rendezvous  rendezvous.Protocol // how large messages travel (DESIGN §5)
	Gatherer    Gatherer            // is asked before a small message of an arena is copied; nil: each is
	Seed        uint64              // seed of the hash of the matching tables
}

// PoolBytes returns the number of bytes of address space that RegionPool needs.
func PoolBytes(pods int, credit uint64) uint64 { return poolReserve(pods, credit) + copyReserve }

// Room is the messages of the ranks of this sidecar.
type Room struct {
	common
	*sender
	*receiver
}

// common is what sends and receives share.
type common struct {
	*shared
	cfg     *Config
	ports   Ports
	channel *channel.Room
	ranks   *ranks.Sessions
	job     *ranks.Job

	peers     []peer
	endpoints []*endpoint // endpoints of the ranks here, by world rank; nil: hosted elsewhere
}

// shared is the part of common that changes.
type shared struct {
	colls    Collectives
	sessions []*session
	remotes  ranks.Table[remoteOp]
	stats    Stats
}

// sender is the messages that ranks of this sidecar send.
type sender struct {
	common
	rx      *receiver // receiver of replies and of messages between ranks of this sidecar
	sends   ranks.Table[send]
	copies  pool              // eager messages copied out of arenas, until acknowledged
	took    map[uint32]uint64 // for ranks that have left: number of the first frame from here that their pod had not received; absent: it had received all
	orphans int               // sends that have outlived their session
}

// receiver is the receives of ranks of this sidecar, and the messages that wait for one.
type receiver struct {
	common
	recvs        ranks.Table[recv]
	parked       ranks.Table[message]
	retractables map[retractable]uint64 // parked messages that their senders may ask back
	probes       ranks.Table[probe]
	pool         paged              // unexpected messages
	withheld     []link.Peer        // peers whose credit waits until memory has gone back to the kernel
	unmet        map[uint64]bool    // receives that were offered, and whose rank left before their message arrived
	polled       []uint64           // receives whose last byte shows their end
	later        queue.FIFO[uint64] // receives whose memory is registered in a later turn
	retrying     bool               // the receives in later have their turn
	dice         uint64
	effort       uint64 // steps of searches that descriptors made it do, in bytes
}

// peer is the room's state of a sidecar of the job.
type peer struct {
	*channel.Peer
	*ranks.Pod
	ranks     int     // number of ranks that the peer hosts
	announced int     // unmatched messages of the peer whose payload the peer still has
	retracts  int     // unanswered requests to the peer to give a message back
	in        inbound // the payload that is being placed
	pages     pages   // memory of its small unexpected messages
	withheld  uint64  // credit in bytes that waits for memory
	offers    *offers // offered receives of the peer; nil: it has offered none
	took      uint64  // from the peer's Bye: number of the first frame from here that it had not received; 0: all were received, or there was no Bye
}

// endpoint is a rank that this sidecar hosts. It exists from the start, so
// that messages may arrive before the application attaches.
type endpoint struct {
	rank    uint32
	queue   *match.Queue      // matching of point-to-point messages
	colls   *match.Queue      // matching of messages of collectives, which is separate
	session *session          // nil: no application is attached
	gone    bool              // an application was attached and has left
	probes  *match.Queue      // waiting probes: patterns only
	traffic traffic           // messages of this rank, by receiving rank
	claimed []uint64          // messages that matched probes have taken and no receive has
	offers  map[link.Peer]int // receives that are offered to a peer
	closed  map[uint32]bool   // contexts in which the rank receives no more messages; nil: none
}

func newEndpoint(rank uint32, seed uint64) *endpoint {
	return &endpoint{rank: rank, queue: match.NewSeeded(seed), colls: match.NewSeeded(seed + 1), probes: match.NewSeeded(seed + 2)}
}

func (e *endpoint) space(coll bool) *match.Queue {
	if coll {
		return e.colls
	}
	return e.queue
}

// session is the room's state of an attached application.
type session struct {
	*ranks.Session
	endpoint *endpoint
	silent   []uint64 // silent sends that the receiver has not taken over
	departed departed
	lender   Lender // lender of memory that the application registers itself; nil: it may not
	lends    link.Region
	lent     map[uint32]*lent
}

// Stats are the room's counters since its start; the last group are levels.
type Stats struct {
	Eager, Get, Put, Stream ranks.Traffic // messages by protocol; rendezvous are counted at the side that moves the data
	Offers, Offered         uint64        // receives offered to their senders, and messages written to offered receives
	Collisions              uint64        // messages of Offered whose end had to be reported to the receiver
	Expected, Unexpected    uint64        // arrivals that found a receive, receives that found a message
	Unregistered            uint64        // registrations refused
	RemoteErrors            uint64
	Discards                uint64        // ranges of free memory that the kernel has got back
	Sizes                   [40]uint64    // messages sent by size: index is the number of bits of the length
	Local, Remote           ranks.Traffic // messages sent to ranks of this pod, and of others

	UnexpectedBytes, UnexpectedPeak uint64
	Sends, Receives, Parked, Probes int
	Remotes                         int // remote operations that are under way
	Copied                          int // bytes of copies that are not acknowledged
	Shut                            int // contexts of which ranks receive nothing any more
	Retractable                     int // parked messages that their senders may want back
}

// New makes the room of a sidecar.
func New(cfg Config, ports Ports, ch *channel.Room, sessions *ranks.Sessions, job *ranks.Job) *Room {
	x := common{shared: new(shared), cfg: &cfg, ports: ports, channel: ch, ranks: sessions, job: job}
	x.peers = make([]peer, cfg.Pods)
	for i := range x.peers {
		x.peers[i].Peer, x.peers[i].Pod = ch.Peer(link.Peer(i)), job.Pod(link.Peer(i))
	}
	for rank := range job.Ranks() {
		x.peerOf(uint32(rank)).ranks++
	}
	x.endpoints = make([]*endpoint, job.Ranks())
	for _, rank := range cfg.Hosted {
		x.endpoints[rank] = newEndpoint(rank, cfg.Seed)
	}
	rx := &receiver{common: x, retractables: map[retractable]uint64{}, unmet: map[uint64]bool{}, dice: cfg.Seed | 1}
	tx := &sender{common: x, rx: rx}
	reserve := poolReserve(cfg.Pods, cfg.CreditBytes)
	rx.pool = paged{pool: pool{region: RegionPool, limit: reserve}, whole: !cfg.Paged}
	tx.copies = pool{region: RegionPool, next: reserve, limit: reserve + copyReserve}
	return &Room{common: x, sender: tx, receiver: rx}
}

// Open sets the owner of messages of collectives.
func (rm *Room) Open(c Collectives) { rm.colls = c }

// peerOf returns the sidecar that hosts a world rank.
// Preconditions: rank is below the job's size.
func (x *common) peerOf(rank uint32) *peer { return &x.peers[x.job.PodOf(rank)] }

// Attach adds an application.
func (rm *Room) Attach(s *ranks.Session) {
	for int(s.ID()) >= len(rm.sessions) {
		rm.sessions = append(rm.sessions, nil)
	}
	e := rm.endpoints[s.Rank()]
	e.session = &session{Session: s, endpoint: e}
	rm.sessions[s.ID()] = e.session
}

// Detach notes that a rank's application has left. gone means that the rank has left with it.
func (rm *Room) Detach(rank uint32, gone bool) {
	e := rm.endpoints[rank]
	e.session, e.gone, e.closed = nil, gone, nil // a rank that has left receives no message of any context
}

// SessionGone forgets an application to whose memory nothing refers any more.
func (rm *Room) SessionGone(id ranks.SessionID) { rm.sessions[id] = nil }

// Renew begins a generation, in which no rank has attached yet. The counts of what ranks have sent
// to others stay.
func (rm *Room) Renew() {
	clear(rm.unmet)
	rm.took = nil
	rm.polled = rm.polled[:0]
	for _, rank := range rm.cfg.Hosted {
		e := rm.endpoints[rank]
		n := newEndpoint(rank, rm.cfg.Seed)
		n.traffic = e.traffic
		*e = *n
	}
	for i := range rm.peers {
		p := &rm.peers[i]
		p.took = 0
		if !p.Self() {
			p.offers, p.retracts = nil, 0
		}
	}
}

// Busy returns the number of states that have to end before a generation can end.
func (rm *Room) Busy() int {
	return rm.orphans + rm.sends.Len() + rm.recvs.Len() + rm.parked.Len() + rm.probes.Len() + rm.remotes.Len() + rm.later.Len()
}

// Orphans returns how many sends have outlived their session.
func (tx *sender) Orphans() int { return tx.orphans }

// Effort returns the cost of searches that descriptors have caused, in bytes.
func (rx *receiver) Effort() uint64 { return rx.effort }

// Stats returns the counters as they stand.
func (rm *Room) Stats() Stats {
	s := rm.stats
	s.UnexpectedBytes, s.UnexpectedPeak = rm.pool.inUse, rm.pool.peak
	s.Sends, s.Receives, s.Parked, s.Probes = rm.sends.Len(), rm.recvs.Len(), rm.parked.Len(), rm.probes.Len()
	s.Remotes, s.Copied, s.Retractable = rm.remotes.Len(), int(rm.copies.inUse), len(rm.retractables)
	for _, rank := range rm.cfg.Hosted {
		s.Shut += len(rm.endpoints[rank].closed)
	}
	return s
}

// Submit takes a descriptor of an application that concerns messages. An error means that no
// correct client sends it.
func (rm *Room) Submit(id ranks.SessionID, d *shm.Descriptor) error {
	s := rm.sessions[id]
	switch d.Op {
	case shm.OpSend:
		return rm.submitSend(s, d)
	case shm.OpRecv:
		return rm.submitRecv(s, d)
	case shm.OpProbe, shm.OpMprobe:
		return rm.submitProbe(s, d)
	case shm.OpMrecv:
		return rm.submitMrecv(s, d)
	case shm.OpDrop:
		return rm.submitDrop(s, d)
	case shm.OpCancel:
		return rm.submitCancel(s, d)
	case shm.OpStage:
		return rm.submitStage(s, d)
	case shm.OpShut:
		s.endpoint.shut(d.Context)
		return nil
	case shm.OpExpose:
		return rm.submitExpose(s, d)
	case shm.OpUnexpose:
		return rm.submitUnexpose(s, d)
	}
	return fmt.Errorf("unknown operation")
}
