package core

import (
	"errors"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func isProtocol(err error) bool { return errors.Is(err, link.ErrProtocol) }

// accept takes a header into account: its acknowledgement, its credit, its
// place in the sequence. It reports whether the frame is new and sequenced.
func (c *Core) accept(p *peer, h *wire.Header) (fresh bool, err error) {
	if p.state == peerDenied {
		c.deny(p, h)
		return false, nil
	}
	p.heardAt, p.pause = c.now, 0
	if p.state != peerConnecting { // else of a connection whose end is known: its link hands over what had come
		p.downAt = 0
	}
	c.stats.FramesIn++
	if !p.self {
		if (h.Type == wire.Left || h.Type == wire.Bye || h.Type == wire.Again) && h.Seq > p.arrivals.Last() {
			c.noteTook(p, h)
		}
		if err := c.acknowledge(p, h.Ack); err != nil {
			return false, err
		}
		if p.credit.Grows(h.Credit) && !p.credit.Learn(h.Credit, c.cfg.CreditBytes) {
			return false, fmt.Errorf("%w: grants more credit than its window", link.ErrProtocol)
		}
	}
	if p.forgets {
		if p.forgets = false; h.Type != wire.Abort {
			return false, p.forgotten(h.Ack)
		}
	}
	if p.state == peerGreeting {
		if h.Seq != 0 {
			return false, fmt.Errorf("%w: frame %d before the greeting", link.ErrProtocol, h.Seq)
		}
		if err := p.greeted(h); err != nil {
			return false, err
		}
		// The peer has all frames up to h.Ack: go on after it.
		c.rewind(p)
		p.state, p.renews = peerReady, h.A&wire.FeatureAgain != 0
		c.checkAgain(p)
		c.touch(p)
	}
	if h.Seq > p.arrivals.Last()+1 && p.ringIn.IsOpen() {
		// Frames of the ring that were complete before this one was posted.
		if err := c.drainRing(p); err != nil {
			return false, err
		}
	}
	if err := p.account.Judge(); err != nil {
		return false, err
	}
	switch {
	case h.Seq == 0:
		return false, nil
	case h.Seq <= p.arrivals.Last():
		return false, nil // sent again although it had arrived
	case h.Seq != p.arrivals.Last()+1:
		return false, fmt.Errorf("%w: frame %d follows frame %d", link.ErrProtocol, h.Seq, p.arrivals.Last())
	}
	return true, nil
}

// arrived ends the processing of a sequenced frame.
func (c *Core) arrived(p *peer, h *wire.Header) error {
	p.arrivals.Arrived(h.Seq)
	c.ports.Note(NoteArrive, p.id, h.Src, h.Tag, uint64(h.Length), h.Seq)
	if p.self {
		return c.acknowledge(p, h.Seq)
	}
	c.oweAck(p, h.Length, h.Flags&wire.FlagAckNow != 0)
	return nil
}

// Deliver takes a whole frame whose payload is in hand. An error means that
// the peer broke the protocol (P§6).
func (c *Core) Deliver(now int64, id link.Peer, h *wire.Header, payload []byte) error {
	c.now = now
	p := &c.peers[id]
	fresh, err := c.accept(p, h)
	if err == nil && h.Type == wire.Ring {
		err = c.onRing(p, payload)
	}
	if err == nil && h.Type == wire.Look {
		err = c.onLook(p, h)
	}
	if err != nil || !fresh {
		return err
	}
	p.handling = h.Seq
	if p.in.active && h.Type != wire.Abort { // placed before the connection broke, whole in hand now
		err = c.deliverPlaced(p, h, payload)
	} else {
		err = c.deliver(p, h, payload)
	}
	if err != nil {
		return err
	}
	return c.arrived(p, h)
}

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
	case wire.Data, wire.Got, wire.Put, wire.Acc:
		return c.deliverBulk(p, h, payload)
	}
	return c.onesided.Frame(p.id, h, payload)
}

// deliverBulk treats a payload in hand like one that the link places: small
// ones and large ones take the same way.
func (c *Core) deliverBulk(p *peer, h *wire.Header, payload []byte) error {
	if err := c.place(p, h); err != nil {
		return err
	}
	return c.deliverPlaced(p, h, payload)
}

func (c *Core) deliverPlaced(p *peer, h *wire.Header, payload []byte) error {
	if p.in.head.Seq != h.Seq || p.in.head.Length != h.Length {
		return fmt.Errorf("%w: frame %d changed when it was sent again", link.ErrProtocol, h.Seq)
	}
	copy(c.ports.Bytes(p.in.dst), payload)
	return c.placed(p)
}

// Place says where the payload of h goes. Until Placed, or the end of the connection, its
// link holds that memory, and nothing else completes the frame: a ring could, and what the
// link has yet to write would go to whoever has the memory next.
func (c *Core) Place(now int64, id link.Peer, h *wire.Header) (link.Ref, error) {
	c.now = now
	p := &c.peers[id]
	fresh, err := c.accept(p, h)
	if err != nil {
		return link.Ref{}, err
	}
	if p.placing = fresh; !fresh {
		return link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}, nil
	}
	return c.placeFresh(p, h)
}

// placeFresh finds the place of the payload of a frame whose turn it is.
func (c *Core) placeFresh(p *peer, h *wire.Header) (ref link.Ref, err error) {
	if p.in.active {
		if p.in.head.Seq != h.Seq || p.in.head.Length != h.Length {
			return link.Ref{}, fmt.Errorf("%w: frame %d changed when it was sent again", link.ErrProtocol, h.Seq)
		}
		return p.in.dst, nil
	}
	if p.gen != c.gen {
		if is, err := c.foreign(p, h); is {
			c.discard(p, h)
			return p.in.dst, err
		}
	}
	switch h.Type {
	case wire.Eager:
		err = c.placeEager(p, h)
	case wire.Data, wire.Got, wire.Put, wire.Acc:
		err = c.place(p, h)
	default:
		err = fmt.Errorf("%w: %v with a payload of %d bytes", link.ErrProtocol, h.Type, h.Length)
	}
	if err != nil {
		return link.Ref{}, err
	}
	return p.in.dst, nil
}

// Placed reports that the payload of the frame last placed is complete.
func (c *Core) Placed(now int64, id link.Peer) error {
	c.now = now
	p := &c.peers[id]
	if !p.placing {
		return nil // a repeated frame, discarded
	}
	p.placing = false
	return c.arrivedWhole(p)
}

// arrivedWhole goes on when the payload of the frame that was placed is complete.
func (c *Core) arrivedWhole(p *peer) error {
	if !p.in.active {
		return nil
	}
	h := p.in.head
	if err := c.placed(p); err != nil {
		return err
	}
	return c.arrived(p, &h)
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

// target fixes where the payload of h goes and holds the memory's session.
func (c *Core) target(p *peer, h *wire.Header, kind placeKind, id uint64, dst link.Ref, s *session) {
	p.handling = h.Seq
	p.in = inbound{active: true, head: *h, dst: dst, id: id, kind: kind}
	if s != nil {
		p.in.session, p.in.hold = s.ID(), true
		c.ranks.Hold(s.ID())
	}
}

func (c *Core) discard(p *peer, h *wire.Header) {
	c.target(p, h, placeDiscard, 0, link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}, nil)
}

// place finds the destination of a frame that belongs to a known transfer.
func (c *Core) place(p *peer, h *wire.Header) error {
	if h.Type == wire.Data {
		return c.placeData(p, h)
	}
	return c.placeOneSided(p, h)
}

// placed carries on with the transfer whose payload is now in memory.
func (c *Core) placed(p *peer) error {
	in := p.in
	p.in = inbound{}
	var err error
	switch in.kind {
	case placeRecv:
		c.eagerPlaced(p, in.id, &in.head)
	case placeMessage:
		c.messagePlaced(in.id)
	case placeData:
		err = c.dataPlaced(p, in.id, &in)
	case placeOneSided:
		c.oneSidedPlaced(p, &in)
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
	if e.gone && !p.self && !c.left {
		c.tellLeft(p) // before the acknowledgement of this frame: its sender learns that it came too late
	}
	if c.turnsAway(e, h) {
		c.tellMatched(p, h, c.refusal())
		c.consumed(p, charge(h.A))
		return nil
	}
	if r, id := c.arrive(e, h); r != nil {
		c.bind(r, p, h, h.A, ranks.Carried(h, h.B))
		c.tellMatched(p, h, shm.StatusOK)
		if r.class != shm.ClassStaged || r.want == 0 {
			c.deposit(r, 0, payload[:r.want])
			c.consumed(p, charge(h.A))
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
func (c *Core) placeEager(p *peer, h *wire.Header) error {
	e, err := c.checkEager(p, h)
	if err != nil {
		return err
	}
	if c.turnsAway(e, h) {
		c.tellMatched(p, h, c.refusal())
		c.consumed(p, charge(h.A))
		c.discard(p, h)
		return nil
	}
	r, id := c.arrive(e, h)
	if r != nil {
		c.bind(r, p, h, h.A, ranks.Carried(h, h.B))
		if r.class != shm.ClassStaged && r.class != shm.ClassInline && r.want == r.length {
			c.target(p, h, placeRecv, id, r.buf.Slice(0, r.want), e.session)
			return nil
		}
	}
	ref, err := c.poolFor(h)
	if err != nil {
		return err
	}
	var m *message
	var mid uint64
	if r != nil { // staged or truncated: taken already, but through the pool
		m, mid = c.parked.Alloc()
		*m = message{endpoint: e, head: *h, peer: p.id, length: h.A, payload: ref, eager: true, waiter: id}
	} else {
		m, mid = c.park(p, e, h, h.A, ref, ranks.Carried(h, h.B))
	}
	m.arriving = true
	c.target(p, h, placeMessage, mid, ref, nil)
	return nil
}

// eagerPlaced tells the sender of a match only now: until the payload is here
// it may have to be sent again, and the sender's memory must not change.
func (c *Core) eagerPlaced(p *peer, id uint64, h *wire.Header) {
	c.tellMatched(p, h, shm.StatusOK)
	c.consumed(p, charge(h.A))
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
		c.refuse(m, c.refusal()) // its receive has ended meanwhile
		m.dropped = true
	}
	if m.dropped {
		c.freeMessage(id, m)
	}
}
