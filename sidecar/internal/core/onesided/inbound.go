package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Frames whose payload the link reads into memory: Got, Put and Acc. Core calls Place for
// the destination, and then Placed or Dropped.

// Destination is the memory for the payload of a frame.
type Destination struct {
	Where   Where
	Memory  link.Ref        // memory of an application, if Where is Memory
	Session ranks.SessionID // held until the payload is placed or dropped
	Of      Inbound
}

// Where is the kind of memory that a payload is read into.
type Where uint8

// Kinds of destinations.
const (
	NoDestination Where = iota // Place returned an error
	Discard                    // memory that is not read
	Pool                       // a piece of the pool
	Memory                     // memory of an application
)

// Inbound identifies the operation that a payload belongs to.
type Inbound struct {
	Kind InboundKind
	ID   uint64
}

// InboundKind is the kind of an Inbound.
type InboundKind uint8

// Kinds of inbound payloads.
const (
	InboundNone InboundKind = iota // no operation that is known
	InboundGot                     // the answer to a get of a hosted rank
	InboundPut                     // a put into a window of this sidecar
	InboundAcc                     // an accumulate
)

// Place returns the destination of a frame's payload.
func (r *Room) Place(from link.Peer, h *wire.Header) (Destination, error) {
	p := r.peer(from)
	if h.Type == wire.Got {
		return r.placeAnswer(p, h)
	}
	return r.placeAccess(p, h)
}

// Placed continues an operation whose payload is complete, in memory at.
func (r *Room) Placed(from link.Peer, of Inbound, h *wire.Header, at link.Ref) {
	switch of.Kind {
	case InboundGot:
		r.answerPlaced(of.ID, h)
	case InboundPut:
		r.putPlaced(of.ID, h)
	case InboundAcc:
		r.accPlaced(r.peer(from), h, at)
	}
}
