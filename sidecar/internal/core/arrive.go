package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func (c *Core) deliver(p *peer, h *wire.Header, payload []byte) error {
	if p.gen != c.gen {
		if is, err := c.foreign(p, h); is {
			return err
		}
	}
	switch h.Type {
	case wire.Eager:
		return c.onEager(p, h, payload)
	case wire.RTS:
		return c.onRTS(p, h, payload)
	case wire.Pull:
		return c.onPull(p, h, payload)
	case wire.Fin:
		return c.onFin(p, h)
	case wire.Matched:
		return c.onMatched(p, h)
	case wire.Written:
		return c.onWritten(p, h.A, h.B == 0, h)
	case wire.Retract:
		return c.onRetract(p, h)
	case wire.Retracted:
		return c.onRetracted(p, h)
	case wire.Abort:
		return c.onAbort(p, h, payload)
	case wire.Ended:
		return c.onEnded(p, h)
	case wire.Left:
		return c.onLeft(p, h)
	case wire.Ready:
		return c.onReady(p, h, payload)
	case wire.Taken:
		return c.onTaken(p, h)
	case wire.Withdraw:
		return c.onWithdraw(p, h)
	case wire.Withdrawn:
		return c.onWithdrawn(p, h)
	case wire.Bye:
		c.onBye(p)
		return nil
	case wire.Again:
		return c.onAgain(p, h)
	case wire.Place:
		return nil // of an earlier release, which chooses processors by it
	}
	return c.onesided.Frame(p.ID(), h, payload)
}

// destination finds where the payload of a frame whose turn it is goes.
func (c *Core) destination(p *peer, h *wire.Header) (link.Ref, error) {
	if p.gen != c.gen {
		if is, err := c.foreign(p, h); is {
			return c.discard(p, h), err
		}
	}
	switch h.Type {
	case wire.Eager:
		return c.placeEager(p, h)
	case wire.Data:
		return c.placeData(p, h)
	case wire.Got, wire.Put, wire.Acc:
		return c.placeOneSided(p, h)
	}
	return link.Ref{}, fmt.Errorf("%w: %v with a payload of %d bytes", link.ErrProtocol, h.Type, h.Length)
}

// placeKind says whose payload an inbound frame carries.
type placeKind uint8

const (
	placeDiscard  placeKind = iota
	placeRecv               // eager, straight into the receive's buffer
	placeMessage            // eager, into the pool
	placeData               // part of a rendezvous
	placeOneSided           // of a window, or of an answer to a get
)

// target notes what the payload that goes to dst is for, and holds the memory's session.
func (c *Core) target(p *peer, kind placeKind, id uint64, dst link.Ref, s *session) link.Ref {
	p.in = inbound{id: id, kind: kind}
	if s != nil {
		p.in.session, p.in.hold = s.ID(), true
		c.ranks.Hold(s.ID())
	}
	return dst
}

func (c *Core) discard(p *peer, h *wire.Header) link.Ref {
	return c.target(p, placeDiscard, 0, link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}, nil)
}

// placed carries on with the transfer whose payload is now in memory.
func (c *Core) placed(p *peer, h *wire.Header, at link.Ref) error {
	in := p.in
	p.in = inbound{}
	var err error
	switch in.kind {
	case placeRecv:
		c.eagerPlaced(p, in.id, h)
	case placeMessage:
		c.messagePlaced(in.id)
	case placeData:
		err = c.dataPlaced(p, in.id, h, at)
	case placeOneSided:
		c.oneSidedPlaced(p, &in, h, at)
	}
	if in.hold {
		c.ranks.Unhold(in.session)
	}
	return err
}

// hostedBy finds the endpoint that h is for.
func (c *Core) hostedBy(p *peer, h *wire.Header) (*endpoint, error) {
	if int(h.Dst) >= len(c.endpoints) || c.endpoints[h.Dst] == nil {
		return nil, ranks.NotHere(h)
	}
	if int(h.Src) >= len(c.endpoints) || c.peerOf(h.Src) != p {
		return nil, ranks.NotThere(h)
	}
	return c.endpoints[h.Dst], nil
}

func (c *Core) onEager(p *peer, h *wire.Header, payload []byte) error {
	e, err := c.checkEager(p, h)
	if err != nil {
		return err
	}
	if e.gone && !p.Self() && !c.left {
		c.tellLeft(p) // before the acknowledgement of this frame: its sender learns that it came too late
	}
	if c.turnsAway(e, h) {
		c.tellMatched(p, h, c.job.Refusal())
		c.consumed(p, h.A)
		return nil
	}
	if r, id := c.arrive(e, h); r != nil {
		c.bind(r, p, h, h.A, ranks.Carried(h, h.B))
		c.tellMatched(p, h, shm.StatusOK)
		if r.class != shm.ClassStaged || r.want == 0 {
			c.deposit(r, 0, payload[:r.want])
			c.consumed(p, h.A)
			c.endRecv(id, r, shm.StatusOK)
			return nil
		}
		ref, err := c.poolFor(h)
		if err != nil {
			return err
		}
		copy(c.ports.Bytes(ref), payload)
		r.eager, r.parked = ref, true
		c.tellStaged(r)
		return nil
	}
	ref, err := c.poolFor(h)
	if err != nil {
		return err
	}
	if h.Length > 0 {
		copy(c.ports.Bytes(ref), payload)
	}
	c.park(p, e, h, h.A, ref, ranks.Carried(h, h.B))
	return nil
}

func (c *Core) checkEager(p *peer, h *wire.Header) (*endpoint, error) {
	if uint64(h.Length) != h.A || h.A > eagerLimit {
		return nil, fmt.Errorf("%w: eager message of %d bytes with %d of payload", link.ErrProtocol, h.A, h.Length)
	}
	if h.Flags&wire.FlagReply != 0 && h.Flags&(wire.FlagSync|wire.FlagData) != 0 {
		return nil, fmt.Errorf("%w: eager message with flags %#x", link.ErrProtocol, h.Flags)
	}
	if err := p.charged(h); err != nil {
		return nil, err
	}
	return c.hostedBy(p, h)
}

// poolFor finds room for an unexpected message. A sender that keeps to its
// credit always finds some.
func (c *Core) poolFor(h *wire.Header) (link.Ref, error) {
	if h.Length == 0 {
		return link.Ref{}, nil
	}
	ref, ok := c.pool.get(uint64(h.Length))
	if !ok {
		return ref, fmt.Errorf("%w: eager messages beyond the granted credit", link.ErrProtocol)
	}
	return ref, nil
}

// placeEager matches an eager message whose payload the link is about to read,
// so that it lands in the receive's buffer without a copy.
func (c *Core) placeEager(p *peer, h *wire.Header) (link.Ref, error) {
	e, err := c.checkEager(p, h)
	if err != nil {
		return link.Ref{}, err
	}
	if c.turnsAway(e, h) {
		c.tellMatched(p, h, c.job.Refusal())
		c.consumed(p, h.A)
		return c.discard(p, h), nil
	}
	r, id := c.arrive(e, h)
	if r != nil {
		c.bind(r, p, h, h.A, ranks.Carried(h, h.B))
		if r.class != shm.ClassStaged && r.class != shm.ClassInline && r.want == r.length {
			return c.target(p, placeRecv, id, r.buf.Slice(0, r.want), e.session), nil
		}
	}
	ref, err := c.poolFor(h)
	if err != nil {
		return ref, err
	}
	var m *message
	var mid uint64
	if r != nil { // staged or truncated: taken already, but through the pool
		m, mid = c.parked.Alloc()
		*m = message{endpoint: e, head: *h, peer: p.ID(), length: h.A, payload: ref, eager: true, waiter: id}
	} else {
		m, mid = c.park(p, e, h, h.A, ref, ranks.Carried(h, h.B))
	}
	m.arriving = true
	return c.target(p, placeMessage, mid, ref, nil), nil
}

// eagerPlaced tells the sender of a match only now: until the payload is here
// it may have to be sent again, and the sender's memory must not change.
func (c *Core) eagerPlaced(p *peer, id uint64, h *wire.Header) {
	c.tellMatched(p, h, shm.StatusOK)
	c.consumed(p, h.A)
	if r := c.recvs.Get(id); r != nil {
		c.endRecv(id, r, shm.StatusOK)
	}
}

func (c *Core) messagePlaced(id uint64) {
	m := c.parked.Get(id)
	if m == nil {
		return
	}
	m.arriving = false
	if m.waiter != 0 {
		if r := c.recvs.Get(m.waiter); r != nil {
			c.deliverParked(r, m.waiter, m, id)
			return
		}
		c.refuse(m, c.job.Refusal()) // its receive has ended meanwhile
		m.dropped = true
	}
	if m.dropped {
		c.freeMessage(id, m)
	}
}
