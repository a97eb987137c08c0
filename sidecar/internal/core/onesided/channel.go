package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Channel has the streams of frames to the peers, and their links. Arguments are values: a
// pointer passed through an interface would be an allocation for each access.
type Channel interface {
	// Emit queues a frame to a peer and returns it for the caller to fill. Answer is Emit for
	// an answer to the peer's request. EmitFrom is Emit for a frame whose payload is memory:
	// the caller has held the session, and Released follows when the memory is free.
	Emit(p link.Peer, t wire.Type) *link.Frame
	Answer(p link.Peer, t wire.Type) *link.Frame
	EmitFrom(p link.Peer, t wire.Type, m Payload) *link.Frame
	// Queue makes Room.Feed be called for t in turn with other transfers of its rank, until it
	// returns false.
	Queue(p link.Peer, rank uint32, t Turn)
	// Wake resumes turns that were suspended because they could emit nothing.
	Wake(p link.Peer)
	// Reach connects to a peer if there is no connection.
	Reach(p link.Peer)
	// PeerState returns the state of a peer, and Caps the capabilities of its link.
	PeerState(p link.Peer) PeerState
	Caps(p link.Peer) link.Caps
	// Access starts a remote read or write, which ends with Room.Accessed; an error: the link
	// has not started it.
	Access(p link.Peer, a Access) error
	// Charge counts bytes that this sidecar keeps for a peer, an error: they exceed the peer's
	// share. Refund ends that.
	Charge(p link.Peer, n int64) error
	Refund(p link.Peer, n int64)
	// Now returns the time of the event that is being handled.
	Now() int64
}

// Payload is the memory of a frame's payload.
type Payload struct {
	Memory  link.Ref
	Session ranks.SessionID
	Release Release
	ID      uint64
}

// Release is the kind of operation that a frame's memory belongs to.
type Release uint8

// Kinds of released memory.
const (
	ReleaseNone   Release = iota // Released is not called
	ReleaseAccess                // a put or accumulate of a hosted rank, by its id
	ReleaseGet                   // the last frame of an answer to a get
)

// Turn identifies a transfer: the queue of a hosted rank, or the answer to a get.
type Turn struct {
	Get bool
	ID  uint64 // ID of the get; otherwise the rank
}

// Access is a remote operation. Accessed returns Done when it has ended.
type Access struct {
	Write   bool
	Session ranks.SessionID
	Memory  link.Ref
	Key     link.Key
	Done    Accessed
}

// Accessed identifies a remote operation that has ended.
type Accessed struct {
	ID   uint64 // ID of the one-sided operation
	View uint64
	Rank uint32 // rank that has started it
}

// PeerState is a set of facts about a peer.
type PeerState uint8

// Facts about a peer.
const (
	Ready       PeerState = 1 << iota // connected, and its Hello has arrived
	Idle                              // not connected, and no side has needed a connection or needs it any more
	Ended                             // dead, or in a later generation: it answers no request of this one
	Unreachable                       // no frame can reach it, or it needs none: dead, rejected, or disconnected after its goodbye
	Dead                              // lost for the rest of the job
	Leaving                           // it has said goodbye
	Full                              // its link has as many queued bytes as it can use
)
