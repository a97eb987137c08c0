package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// What the room calls in addition to its sessions. Arguments go by value: through an interface a
// pointer to the caller's stack would be an allocation for each access.

// Channel is the streams of frames to the peers, and their links.
type Channel interface {
	// Emit queues a frame to a peer and returns it for the caller to fill. Answer is Emit for
	// one that the peer has asked for. EmitFrom is Emit for one whose payload is memory; until
	// that is free, which Released tells, its session is held: the caller has held it.
	Emit(p link.Peer, t wire.Type) *link.Frame
	Answer(p link.Peer, t wire.Type) *link.Frame
	EmitFrom(p link.Peer, t wire.Type, m Payload) *link.Frame
	// Queue gives work that takes many frames its turns, among other work of its rank:
	// Room.Feed is called for each of them.
	Queue(p link.Peer, rank uint32, t Turn)
	// Wake has those turns go on that had nothing to do, if there are some.
	Wake(p link.Peer)
	// Reach makes the connection to a peer if there is none.
	Reach(p link.Peer)
	// Standing is how things are with a peer, and Caps what its link can do.
	Standing(p link.Peer) Standing
	Caps(p link.Peer) link.Caps
	// Access starts a read or write of a peer's memory, which Room.Accessed ends; an error if
	// the link refuses it.
	Access(p link.Peer, a Access) error
	// Charge accounts bytes that a peer makes this sidecar keep, unless it has too many, and
	// Refund gives them back.
	Charge(p link.Peer, n int64) error
	Refund(p link.Peer, n int64)
	// Now is the time of the event that is being handled.
	Now() int64
}

// Payload is memory that a frame is sent from.
type Payload struct {
	Memory  link.Ref
	Session ranks.SessionID
	Release Release
	ID      uint64
}

// Release says what a frame's memory was of.
type Release uint8

// Releases.
const (
	ReleaseNone   Release = iota // Released is not called
	ReleaseAccess                // of a put or accumulate of here, by its id
	ReleaseGet                   // the last of an answer to a get
)

// Turn names what is fed: the accesses of a rank of here, or a get that is answered.
type Turn struct {
	Get bool
	ID  uint64 // of a get; else the rank
}

// Access is a remote operation. The room gets Done back when it has ended.
type Access struct {
	Write   bool
	Session ranks.SessionID
	Memory  link.Ref
	Key     link.Key
	Done    Accessed
}

// Accessed is a remote operation that has ended.
type Accessed struct {
	ID   uint64 // of the operation that it carries out
	View uint64
	Rank uint32 // that has started it
}

// Standing is what may be expected of a peer: a set.
type Standing uint8

// Elements of a standing.
const (
	Ready  Standing = 1 << iota // connected, and it has greeted
	Idle                        // there is no connection, and nobody has needed one, or does any more
	Over                        // it answers nothing of this generation any more
	Beyond                      // it cannot be told of anything any more, or needs not
	Dead                        // for good
	Bye                         // it has said goodbye
	Full                        // as much waits for its link as is useful
)
