// Package collective carries out the collectives of the ranks that this sidecar hosts. It
// is a room of the core: owned by the turn goroutine, without clock or I/O.
//
// The room owns the communicators of each attached application with the groups of ranks
// that these share, the collectives that are under way with their plans (package coll),
// their vectors and the turns of their copies and folds, the record of the collectives
// that each rank has begun last, and the disagreement that ends the job. A collective is
// reading while its vectors are copied in pieces and its rank is not heard; moving while
// messages of its round are open; local while it copies and folds, at once or in turns
// (Advance); combining while the application runs an operation of its own (until Reduced);
// and then it has ended. Above, core submits descriptors, ends the collectives of a session
// that goes (End, one request a step; SessionGone when nothing refers to the session any
// more), gives the room its turn (Advance, Pending) and ends the job for a Dispute. Below,
// core/ranks keeps the requests and the memory of applications, and what is known of the job;
// core/p2p carries the messages (Messages), and reports a message with Opened, Matched and
// Done, and one that no receive waits for with Parked (p2p.Collectives). The loss of a peer and the departure of a rank reach a collective as the
// status of its messages, one Done each: their order and their bounds are those of the
// messages, which the top decides.
//
//	Submit      claims the request, holds the memory; vectors come in pieces (Advance)
//	begin       plan, identity, number in the communicator
//	round       Messages.Send, Messages.Receive -> Opened, Matched -> Done for each
//	            copies and folds, in turns if they are long (Advance)
//	            Sessions.Publish(OpReduce) -> Reduced, of an operation of the program's own
//	...         the next round, without the application
//	end         Messages.Cancel for what a failure has left open; Sessions.Complete, Unhold
package collective

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// Config fixes a room for its life.
type Config struct {
	Self        link.Peer // this sidecar
	PodOf       []int32   // pod of each world rank
	Hosted      int       // ranks of this sidecar
	VectorPiece int       // numbers of vectors that are taken at once
}

// Room holds the collectives of a sidecar's ranks.
type Room struct {
	cfg      Config
	ports    Ports
	sessions *ranks.Sessions
	messages Messages
	job      *ranks.Job

	members []*member // by session; nil: none
	past    []begun   // by hosted rank
	calls   ranks.Table[call]
	locals  queue.Fair[uint32, uint64] // calls with local steps, or vectors, to take in turns
	dispute *Dispute                   // ranks disagree, and the job has not ended yet

	world   *group
	groups  map[uint64][]*group // by hash of their ranks
	list    []uint32            // scratch of namedGroup
	vectors [][]int64           // not in use
	effort  uint64              // bytes of lists and vectors that descriptors made it read
	stats   Stats
}

// member is an attached application.
type member struct {
	session *ranks.Session
	past    *begun
	comms   map[uint32]*comm
	reading bool // a collective of it takes its vectors
}

// Stats are counters since the room's start; the last group are levels.
type Stats struct {
	Begun, Bytes uint64 // collectives, and what they put out here

	Open   int    // collectives under way
	Groups uint64 // ranks of all groups but the world's, of memory.GroupsMax
}

// Dispute is why the job has to end: ranks have called different collectives.
type Dispute struct {
	Rank   uint32 // that has found it out
	Reason string
}

// New makes a room without applications.
func New(cfg Config, ports Ports, sessions *ranks.Sessions, messages Messages, job *ranks.Job) (*Room, error) {
	r := &Room{cfg: cfg, ports: ports, sessions: sessions, messages: messages, job: job, past: make([]begun, cfg.Hosted)}
	if err := r.initGroups(); err != nil {
		return nil, err
	}
	return r, nil
}

// Attach adds the application of the index-th hosted rank. It is in the communicator of the
// world.
func (r *Room) Attach(s *ranks.Session, index int) {
	for int(s.ID()) >= len(r.members) {
		r.members = append(r.members, nil)
	}
	b := &member{session: s, past: &r.past[index], comms: map[uint32]*comm{}}
	r.world.refs++
	b.comms[0] = &comm{group: r.world, me: int(s.Rank())}
	r.members[s.ID()] = b
}

// SessionGone ends the communicators of an application. Preconditions: its collectives
// have ended.
func (r *Room) SessionGone(s ranks.SessionID) {
	for context := range r.members[s].comms {
		r.FreeComm(s, context)
	}
	r.members[s] = nil
}

// Renew forgets what ranks have begun: another generation of attachments begins.
func (r *Room) Renew() { clear(r.past) }

// Reading reports that a collective of the application takes its vectors: what the
// application says next is for after that.
func (r *Room) Reading(s ranks.SessionID) bool { return r.members[s].reading }

// Pending reports that Advance has something to do, or that there is a dispute.
func (r *Room) Pending() bool { return r.dispute != nil || !r.locals.Empty() }

// Dispute takes the disagreement that was noted; nil: there is none.
func (r *Room) Dispute() *Dispute {
	d := r.dispute
	r.dispute = nil
	return d
}

// Past are the collectives that the index-th hosted rank has begun last: rows of one
// kind, the last row first.
func (r *Room) Past(index int) []ranks.Wait { return r.past[index].list() }

// Effort counts the bytes of lists and vectors that descriptors have made the room read.
func (r *Room) Effort() uint64 { return r.effort }

// Stats returns the counters as they stand.
func (r *Room) Stats() Stats {
	s := r.stats
	s.Open = r.calls.Len()
	return s
}
