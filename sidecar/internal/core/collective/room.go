// Package collective runs the collectives of the ranks that this sidecar hosts. It is a
// room of the core: the turn goroutine owns it, and it has no clock and no I/O.
//
// The room owns the communicators of each attached application and the groups of ranks
// that communicators share; the collectives that have begun and not ended, with their
// plans (package coll), their vectors, and the queue of their copies and folds; a record
// of the last collectives of each rank; and the disagreement that ends the job.
//
// A collective has these states: reading, while its vectors are copied in pieces (the
// engine reads no further descriptor of its rank meanwhile); messages, while messages of
// its round are open; local, while it copies and folds, at once or in turns (Advance);
// user operation, while the application combines two ranges (until Reduced); away, while a
// Folder does (until Folded); ended. After a
// Dispute no collective continues: core ends the job in the next step.
//
// Core submits descriptors; ends the collectives of a session that closes, or of all
// sessions in a failed job (End, one request a step); calls SessionGone when nothing refers
// to a session any more, Advance while Pending, and ends the job for a Dispute. Package
// ranks keeps the requests and the memory of applications, and the state of the job. Package
// p2p carries the messages (Messages) and calls p2p.Collectives: Opened for a message that
// does not end at once, Matched for a receive, Done for each message, and Parked for a
// message that no receive waits for. If a rank leaves, the messages that wait for it end
// with that status.
//
//	Submit      claims the request, holds the session; copies vectors in pieces (Advance)
//	begin       plan, signature, number in the communicator
//	round       Messages.Send, Messages.Receive -> Opened, Matched -> Done for each
//	            copies and folds, in turns if they are long (Advance)
//	            user operation: Sessions.Publish(OpReduce) -> Reduced
//	            a long fold, if there is a Folder: Fold -> Folded
//	...         the next round, without the application
//	Greeted     the number of a pod's schedules: if it is another one, a collective with ranks of
//	            that pod ends the job
//	End         Messages.Cancel for messages that are still open after a failure;
//	            Sessions.Complete, Unhold
package collective

import (
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// Config is the configuration of a Room.
type Config struct {
	Self        link.Peer   // this sidecar
	PodOf       []int32     // pod of each world rank
	Hosted      int         // ranks of this sidecar
	MoreLists   int64       // how much more than memory.GroupsMax the lists of ranks of all groups may take
	VectorPiece int         // numbers of vectors that one turn copies for a collective
	Folder      Folder      // nil: turns combine everything
	Rules       []coll.Rule // the job's choice of algorithms
	Schedules   uint64      // coll.Schedules; 0: those of other pods are not compared
}

// Folder combines ranges outside of the turns.
type Folder interface {
	// Fold begins to combine src into dst for a collective of a rank, and returns false if
	// that is not worth its cost. Folded follows in a later turn; the memory is used until then.
	Fold(rank uint32, id uint64, op coll.Op, typ coll.Type, dst, src link.Ref) bool
	// Await waits until the fold of a collective uses no memory any more. Folded does not
	// follow.
	Await(id uint64)
}

// Room holds the collectives of a sidecar's ranks.
type Room struct {
	cfg      Config
	ports    Ports
	sessions *ranks.Sessions
	messages Messages
	job      *ranks.Job

	members []*member // members by session; nil: not attached
	past    []begun   // by hosted rank
	calls   ranks.Table[call]
	locals  queue.Fair[uint32, uint64] // calls with local steps or vectors to copy, by rank
	dispute *Dispute                   // set from the detection of a disagreement until core has read it
	others  map[link.Peer]uint64       // pods with other schedules; nil: none

	world   *group
	groups  map[uint64][]*group // groups by hash of their ranks
	lists   ranks.Allowance     // ranks in groups other than the world, and memory.GroupFixed for each
	made    []int64             // the same by the hosted rank that has made them
	list    []uint32            // scratch of namedGroup
	vectors [][]int64           // free vectors, at most vectorsKept
	table   *coll.Table         // Config.Rules
	effort  uint64              // bytes of rank lists and vectors read for descriptors
	stats   Stats
}

// member is an attached application.
type member struct {
	session *ranks.Session
	past    *begun
	lists   *int64 // in Room.made
	comms   map[uint32]*comm
	reading bool // vectors of one of its collectives are being copied
}

// Stats are counters since the room's start; the last group are levels.
type Stats struct {
	Begun, Bytes uint64      // collectives, and bytes of their results on this sidecar
	By           coll.Counts // collectives by algorithm

	Open   int    // collectives that have begun and not ended
	Groups uint64 // ranks in groups other than the world; bound: Room.lists
}

// Dispute is the reason to end a job whose ranks have called different collectives, or whose
// sidecars plan them differently.
type Dispute struct {
	Rank   uint32 // hosted rank whose collective it concerns
	Reason string
}

// New returns a Room without applications.
func New(cfg Config, ports Ports, sessions *ranks.Sessions, messages Messages, job *ranks.Job) (*Room, error) {
	r := &Room{cfg: cfg, ports: ports, sessions: sessions, messages: messages, job: job, past: make([]begun, cfg.Hosted), made: make([]int64, cfg.Hosted)}
	r.lists = ranks.Divide(memory.GroupsMax(len(cfg.PodOf))+cfg.MoreLists, cfg.Hosted)
	if err := r.initGroups(); err != nil {
		return nil, err
	}
	var err error
	r.table, err = coll.NewTable(cfg.Rules)
	return r, err
}

// Attach adds the application of the index-th hosted rank, with the communicator of all
// ranks.
func (r *Room) Attach(s *ranks.Session, index int) {
	for int(s.ID()) >= len(r.members) {
		r.members = append(r.members, nil)
	}
	b := &member{session: s, past: &r.past[index], lists: &r.made[index], comms: map[uint32]*comm{}}
	r.world.refs++
	b.comms[0] = &comm{group: r.world, me: int(s.Rank())}
	r.members[s.ID()] = b
}

// SessionGone frees the communicators of an application, whose collectives must have
// ended.
func (r *Room) SessionGone(s ranks.SessionID) {
	for _, m := range r.members[s].comms { // any order: nothing is sent, and the session has given its charges back
		r.releaseGroup(m.group)
	}
	r.members[s] = nil
}

// Renew clears the records of all ranks at the start of a generation of attachments.
func (r *Room) Renew() { clear(r.past) }

// Reading reports whether vectors of the application are being copied. Its next
// descriptors are read after that, because they may depend on the collective's number.
func (r *Room) Reading(s ranks.SessionID) bool { return r.members[s].reading }

// Pending reports whether Advance has work, or a Dispute waits to be read.
func (r *Room) Pending() bool { return r.dispute != nil || !r.locals.Empty() }

// Dispute returns and clears the disagreement; nil: none was found.
func (r *Room) Dispute() *Dispute {
	d := r.dispute
	r.dispute = nil
	return d
}

// Past returns the last collectives that the index-th hosted rank has begun, one row for
// consecutive ones of a kind, the latest row first.
func (r *Room) Past(index int) []ranks.Wait { return r.past[index].list() }

// Effort returns the bytes of rank lists and vectors that the room has read for descriptors.
func (r *Room) Effort() uint64 { return r.effort }

// Stats returns the counters as they stand.
func (r *Room) Stats() Stats {
	s := r.stats
	s.Open, s.Groups = r.calls.Len(), uint64(r.lists.Used())
	return s
}
