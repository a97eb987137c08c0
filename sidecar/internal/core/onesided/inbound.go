package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Frames whose payload is read by the link: Got, Put and Acc. Place says where one goes, and
// then it is Placed, or Dropped.

// Destination is where the payload of a frame goes.
type Destination struct {
	Where   Where
	Memory  link.Ref        // of an application
	Session ranks.SessionID // that is held until the payload is placed, or dropped
	Of      Inbound
}

// Where is what a payload is read into.
type Where uint8

// Places of payloads.
const (
	Nowhere Where = iota // Place has failed
	Discard              // memory that nobody reads
	Pool                 // the pool, which it passes through
	Memory               // an application's
)

// Inbound names what a payload belongs to.
type Inbound struct {
	Kind InboundKind
	ID   uint64
}

// InboundKind says what an Inbound is.
type InboundKind uint8

// Kinds of inbound payloads.
const (
	InboundNone InboundKind = iota // of nothing that is known
	InboundGot                     // of the answer to a get of here
	InboundPut                     // of a put into a window of here
	InboundAcc                     // of an accumulate
)

// Place finds where the payload of a frame goes.
func (r *Room) Place(from link.Peer, h *wire.Header) (Destination, error) {
	p := r.peer(from)
	if h.Type == wire.Got {
		return r.placeGot(p, h)
	}
	return r.placeAccess(p, h)
}

// Placed goes on when the payload of a frame is complete, in memory at.
func (r *Room) Placed(from link.Peer, of Inbound, h *wire.Header, at link.Ref) {
	switch of.Kind {
	case InboundGot:
		r.gotPlaced(of.ID, h)
	case InboundPut:
		r.putPlaced(of.ID, h)
	case InboundAcc:
		r.accPlaced(r.peer(from), h, at)
	}
}
