package collective

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// Messages sends and receives the messages of collectives (package p2p). Each message ends
// with one Room.Done, maybe before Send or Receive returns. Arguments are values: a pointer
// passed through an interface would be an allocation for each message.
type Messages interface {
	Send(m Message)
	Receive(m Message)
	// Cancel ends an open message of a collective that has ended early. Its Done finds the
	// collective gone.
	Cancel(m MessageID)
	// Peer returns the rank that an open message waits for; false: it has ended.
	Peer(m MessageID) (rank uint32, open bool)
	// Parked returns the oldest unexpected message of an application's rank that fits the
	// pattern.
	Parked(s ranks.SessionID, p match.Pattern) (Parked, bool)
}

// Message, MessageID and Parked are types of package p2p.
type (
	Message   = p2p.Message
	MessageID = p2p.MessageID
	Parked    = p2p.Parked
)

// Ports are the services of the engine.
type Ports interface {
	link.Memory
	Note(kind ranks.NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64)
}
