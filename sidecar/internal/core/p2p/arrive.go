package p2p

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Frame handles a frame that concerns messages, with its payload.
func (rm *Room) Frame(id link.Peer, h *wire.Header, payload []byte) error {
	p := &rm.peers[id]
	switch h.Type {
	case wire.RTS:
		return rm.onRTS(p, h, payload)
	case wire.Pull:
		return rm.onPull(p, h, payload)
	case wire.Fin:
		return rm.onFin(p, h)
	case wire.Matched:
		return rm.onMatched(p, h)
	case wire.Written:
		return rm.onWritten(p, h.A, h.B == 0, h)
	case wire.Retract:
		return rm.onRetract(p, h)
	case wire.Retracted:
		return rm.onRetracted(p, h)
	case wire.Ended:
		return rm.onEnded(p, h)
	case wire.Ready:
		return rm.onReady(p, h, payload)
	case wire.Taken:
		return rm.onTaken(p, h)
	case wire.Withdraw:
		return rm.onWithdraw(p, h)
	case wire.Withdrawn:
		return rm.onWithdrawn(p, h)
	}
	return fmt.Errorf("%w: %v is no frame of a message", link.ErrProtocol, h.Type)
}

// Destination returns where the payload of an Eager or Data frame goes.
func (rx *receiver) Destination(id link.Peer, h *wire.Header) (link.Ref, error) {
	if h.Type == wire.Eager {
		return rx.placeEager(&rx.peers[id], h)
	}
	return rx.placeData(&rx.peers[id], h)
}

// inbound is the receive or message of the payload that is being placed
// (channel.Peer.Placing).
type inbound struct {
	id      uint64 // receive or message
	kind    placeKind
	session ranks.SessionID
	hold    bool
}

// placeKind is the kind of an inbound payload.
type placeKind uint8

const (
	placeDiscard placeKind = iota
	placeRecv              // eager, straight into the receive's buffer
	placeMessage           // eager, into the pool
	placeData              // part of a rendezvous
)

// target records which message the payload that goes to dst belongs to, and holds the session of
// that memory.
func (rx *receiver) target(p *peer, kind placeKind, id uint64, dst link.Ref, s *session) link.Ref {
	p.in = inbound{id: id, kind: kind}
	if s != nil {
		p.in.session, p.in.hold = s.ID(), true
		rx.ranks.Hold(s.ID())
	}
	return dst
}

func (rx *receiver) discard(p *peer, h *wire.Header) link.Ref {
	return rx.target(p, placeDiscard, 0, link.Ref{Region: channel.RegionDiscard, Len: uint64(h.Length)}, nil)
}

// Placed continues the message whose payload is at its destination.
func (rx *receiver) Placed(id link.Peer, h *wire.Header, at link.Ref) error {
	p := &rx.peers[id]
	in := p.in
	p.in = inbound{}
	var err error
	switch in.kind {
	case placeRecv:
		rx.eagerPlaced(p, in.id, h)
	case placeMessage:
		rx.messagePlaced(in.id)
	case placeData:
		err = rx.dataPlaced(p, in.id, h, at)
	}
	if in.hold {
		rx.ranks.Unhold(in.session)
	}
	return err
}

// Abandon gives up the payload that a dead peer was sending.
func (rx *receiver) Abandon(id link.Peer, at link.Ref) {
	p := &rx.peers[id]
	in := p.in
	p.in = inbound{}
	if at.Region == RegionPool && in.kind != placeMessage {
		rx.pool.passed(at)
	}
	switch in.kind {
	case placeRecv:
		if r := rx.recvs.Get(in.id); r != nil {
			rx.endRecv(in.id, r, rx.job.Lost(p.ID()))
		}
	case placeMessage:
		if m := rx.parked.Get(in.id); m != nil {
			if r := rx.recvs.Get(m.waiter); r != nil {
				rx.endRecv(m.waiter, r, rx.job.Lost(p.ID()))
			}
			m.endpoint.space(m.coll).Drop(m.ref) // refused if it was taken
			rx.dropClaim(m)
			rx.freeMessage(in.id, m)
		}
	}
	if in.hold {
		rx.ranks.Unhold(in.session)
	}
}

// hostedBy returns the endpoint that a frame of p is addressed to.
func (x *common) hostedBy(p *peer, h *wire.Header) (*endpoint, error) {
	if int(h.Dst) >= len(x.endpoints) || x.endpoints[h.Dst] == nil {
		return nil, ranks.NotHere(h)
	}
	if int(h.Src) >= len(x.endpoints) || x.peerOf(h.Src) != p {
		return nil, ranks.NotThere(h)
	}
	return x.endpoints[h.Dst], nil
}

// Eager handles an eager message with its payload.
func (rx *receiver) Eager(id link.Peer, h *wire.Header, payload []byte) error {
	p := &rx.peers[id]
	e, err := rx.checkEager(p, h)
	if err != nil {
		return err
	}
	if rx.rejects(e, h) {
		rx.sendMatched(p, h, rx.job.Refusal())
		rx.consumed(p, h.A)
		return nil
	}
	if r, id := rx.arrive(e, h); r != nil {
		rx.bind(r, p, h, h.A, ranks.Carried(h, h.B))
		rx.sendMatched(p, h, shm.StatusOK)
		if r.class != shm.ClassStaged || r.want == 0 {
			rx.copyIn(r, 0, payload[:r.want])
			rx.consumed(p, h.A)
			rx.endRecv(id, r, shm.StatusOK)
			return nil
		}
		ref, err := rx.poolFor(p, h)
		if err != nil {
			return err
		}
		copy(rx.ports.Bytes(ref), payload)
		r.eager, r.parked = ref, true
		rx.requestChunks(r)
		return nil
	}
	ref, err := rx.poolFor(p, h)
	if err != nil {
		return err
	}
	if h.Length > 0 {
		copy(rx.ports.Bytes(ref), payload)
	}
	rx.park(p, e, h, h.A, ref, ranks.Carried(h, h.B))
	return nil
}

func (rx *receiver) checkEager(p *peer, h *wire.Header) (*endpoint, error) {
	if uint64(h.Length) != h.A || h.A > EagerLimit {
		return nil, fmt.Errorf("%w: eager message of %d bytes with %d of payload", link.ErrProtocol, h.A, h.Length)
	}
	if h.Flags&wire.FlagReply != 0 && h.Flags&(wire.FlagSync|wire.FlagData) != 0 {
		return nil, fmt.Errorf("%w: eager message with flags %#x", link.ErrProtocol, h.Flags)
	}
	if err := p.charged(h); err != nil {
		return nil, err
	}
	return rx.hostedBy(p, h)
}

// poolFor returns memory for an unexpected message. There is always some for a sender that keeps
// within its credit.
func (rx *receiver) poolFor(p *peer, h *wire.Header) (link.Ref, error) {
	if h.Length == 0 {
		return link.Ref{}, nil
	}
	ref, ok := rx.pool.keep(&p.pages, uint64(h.Length))
	if !ok {
		return ref, fmt.Errorf("%w: eager messages beyond the granted credit", link.ErrProtocol)
	}
	return ref, nil
}

// placeEager matches an eager message whose payload the link is about to read,
// so that the payload goes into the receive's buffer without a copy.
func (rx *receiver) placeEager(p *peer, h *wire.Header) (link.Ref, error) {
	e, err := rx.checkEager(p, h)
	if err != nil {
		return link.Ref{}, err
	}
	if rx.rejects(e, h) {
		rx.sendMatched(p, h, rx.job.Refusal())
		rx.consumed(p, h.A)
		return rx.discard(p, h), nil
	}
	r, id := rx.arrive(e, h)
	if r != nil {
		rx.bind(r, p, h, h.A, ranks.Carried(h, h.B))
		if r.class != shm.ClassStaged && r.class != shm.ClassInline && r.want == r.length {
			return rx.target(p, placeRecv, id, r.buf.Slice(0, r.want), e.session), nil
		}
	}
	ref, err := rx.poolFor(p, h)
	if err != nil {
		return ref, err
	}
	var m *message
	var mid uint64
	if r != nil { // staged or truncated: matched, but its payload goes through the pool
		m, mid = rx.parked.Alloc()
		*m = message{endpoint: e, head: *h, peer: p.ID(), length: h.A, payload: ref, eager: true, waiter: id}
	} else {
		m, mid = rx.park(p, e, h, h.A, ref, ranks.Carried(h, h.B))
	}
	m.arriving = true
	return rx.target(p, placeMessage, mid, ref, nil), nil
}

// eagerPlaced reports the match to the sender. It does not do so earlier: until the payload is
// here, the frame may have to be sent again, and the sender's memory must not change.
func (rx *receiver) eagerPlaced(p *peer, id uint64, h *wire.Header) {
	rx.sendMatched(p, h, shm.StatusOK)
	rx.consumed(p, h.A)
	if r := rx.recvs.Get(id); r != nil {
		rx.endRecv(id, r, shm.StatusOK)
	}
}

func (rx *receiver) messagePlaced(id uint64) {
	m := rx.parked.Get(id)
	if m == nil {
		return
	}
	m.arriving = false
	if m.waiter != 0 {
		if r := rx.recvs.Get(m.waiter); r != nil {
			rx.deliverParked(r, m.waiter, m, id)
			return
		}
		rx.refuseMessage(m, rx.job.Refusal()) // its receive has ended meanwhile
		m.dropped = true
	}
	if m.dropped {
		rx.freeMessage(id, m)
	}
}
