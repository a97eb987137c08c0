package collective

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// What the room calls in addition to its sessions. Arguments go by value: through an interface a
// pointer to the caller's stack would be an allocation for each message.

// Messages is what carries the messages of collectives. Each that was started ends with
// one Room.Done, maybe before its start returns.
type Messages interface {
	Send(m Message)
	Receive(m Message)
	// Cancel ends a message of a collective that ends early, if it is open still. Its Done
	// finds the collective gone.
	Cancel(m MessageID)
	// Peer is the rank that an open message waits for; false: it has ended.
	Peer(m MessageID) (rank uint32, open bool)
	// Parked is the oldest message of the pattern that has come for an application's rank and
	// that no receive has taken.
	Parked(s ranks.SessionID, p match.Pattern) (Parked, bool)
}

// Message is a send or a receive of a round.
type Message struct {
	Session    ranks.SessionID
	Collective uint64 // for Opened, Matched and Done
	Peer       uint32 // a world rank
	Context    uint32
	Tag        uint64
	Memory     link.Ref
	Data       ranks.Immediate // of a send: what it is a message of
	Announced  uint32          // of that, what an announcement has room for
}

// MessageID names a message of a round that has a state of its own. It may have ended.
type MessageID struct {
	ID   uint64
	Send bool
}

// Parked is a message that no receive has taken.
type Parked struct {
	Source uint32
	Length uint64
	Data   ranks.Immediate
}

// Job is what the room knows of the job, and tells of it.
type Job interface {
	// HasLeft reports that nothing of a rank will come any more.
	HasLeft(rank uint32) bool
	// Failed reports that the job has failed: a disagreement is no news then.
	Failed() bool
	// Began notes in the flight recorder that a rank has begun a collective.
	Began(rank uint32, kind coll.Kind, bytes uint64, number uint32)
}
