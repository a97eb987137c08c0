package collective

import (
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
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

// What a message is, and what names it, are p2p's.
type (
	Message   = p2p.Message
	MessageID = p2p.MessageID
	Parked    = p2p.Parked
)

// Ports is what the room needs done by the engine.
type Ports interface {
	link.Memory
	Note(kind ranks.NoteKind, peer link.Peer, rank uint32, tag, size, seq uint64)
}
