package channel

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// accept takes a header into account: its acknowledgement, its credit, its
// position in the sequence. It reports whether the frame is new and sequenced.
func (r *Room) accept(p *Peer, h *wire.Header) (fresh bool, err error) {
	if p.state == Rejected {
		r.reject(p, h)
		return false, nil
	}
	p.times.heard, p.times.pause = r.now, 0
	r.visits.use(p.rings.lane)
	if p.state != Connecting { // otherwise the connection has ended, and its link delivers the frames that had arrived
		p.times.down = 0
	}
	r.stats.FramesIn++
	if !p.self {
		if (h.Type == wire.Left || h.Type == wire.Bye || h.Type == wire.Again) && h.Seq > p.arrivals.Last() {
			if err := p.tookPosted(h); err != nil {
				return false, err
			}
			r.user.Leaving(p.id, h)
		}
		if err := r.acknowledge(p, h.Ack); err != nil {
			return false, err
		}
		if p.credit.Grows(h.Credit) && !p.credit.Learn(h.Credit, r.cfg.CreditBytes) {
			return false, fmt.Errorf("%w: grants more credit than its window", link.ErrProtocol)
		}
	}
	if p.forgets {
		if p.forgets = false; h.Type != wire.Abort {
			return false, p.forgotten(h.Ack)
		}
	}
	if p.state == Greeting {
		if err := r.greeted(p, h); err != nil {
			return false, err
		}
	}
	if h.Seq > p.arrivals.Last()+1 && p.rings.in.IsOpen() {
		// Frames of the ring that were complete before this one was posted.
		if err := r.drainRing(p); err != nil {
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
		return false, nil // a repeated frame
	case h.Seq != p.arrivals.Last()+1:
		return false, fmt.Errorf("%w: frame %d follows frame %d", link.ErrProtocol, h.Seq, p.arrivals.Last())
	}
	return true, nil
}

// tookPosted returns an error if a goodbye names a frame that was not posted as received: its A is the
// number of the first frame that was not (P§7).
func (p *Peer) tookPosted(h *wire.Header) error {
	if h.A == 0 || p.out.Was(h.A-1) {
		return nil
	}
	return fmt.Errorf("%v: %w", h.Type, p.out.Never(h.A-1))
}

// greeted handles the first frame of a connection. It compares the peer's acknowledgement with
// the link's confirmations. A peer that acknowledges 0 may have given this sidecar up: then
// its next frame is an Abort (reject.go).
func (r *Room) greeted(p *Peer, h *wire.Header) error {
	if h.Seq != 0 {
		return fmt.Errorf("%w: frame %d before the greeting", link.ErrProtocol, h.Seq)
	}
	p.knowsElem = h.A&wire.FeatureElem != 0
	if err := r.meet(p, h.A&wire.FeatureYield != 0); err != nil {
		return err
	}
	p.forgets = h.Ack < p.out.Came()
	if p.forgets && h.Ack > 0 {
		return p.forgotten(h.Ack)
	}
	r.rewind(p) // the frames after h.Ack are posted again
	p.state = Ready
	r.user.Greeted(p.id, h)
	r.recover(p)
	r.Touch(p)
	return nil
}

// forgotten returns the error of a peer that asks for frames whose memory has been released.
func (p *Peer) forgotten(ack uint64) error {
	return fmt.Errorf("%w: asks for frame %d again, and its device had confirmed all up to %d: the device, or its driver, has lost what it had taken in", link.ErrProtocol, ack+1, p.out.Came())
}

// arrived ends the processing of a sequenced frame.
func (r *Room) arrived(p *Peer, h *wire.Header) error {
	p.arrivals.Arrived(h.Seq)
	r.ports.Note(ranks.NoteArrive, p.id, h.Src, h.Tag, uint64(h.Length), h.Seq)
	if p.self {
		return r.acknowledge(p, h.Seq)
	}
	r.oweAck(p, h.Length, h.Flags&wire.FlagAckNow != 0)
	return nil
}

// oweAck makes sure that what just arrived is acknowledged, at once or after
// Config.AckDelay when no frame has carried the acknowledgement by then.
func (r *Room) oweAck(p *Peer, bytes uint32, atOnce bool) {
	p.arrivals.Owe(r.now, int64(r.cfg.AckDelay), bytes, atOnce)
	if p.arrivals.At() > r.now && !p.owed {
		p.owed = true
		r.owed = append(r.owed, p.id)
	}
	if p.arrivals.Due(r.now) {
		r.Touch(p)
	}
}

// Deliver handles a whole frame with its payload. An error means that the peer violated the
// protocol (P§6).
func (r *Room) Deliver(now int64, id link.Peer, h *wire.Header, payload []byte) error {
	r.now = now
	p := &r.peers[id]
	fresh, err := r.accept(p, h)
	if err == nil && h.Type == wire.Ring {
		err = r.onRing(p, payload)
	}
	if err == nil && h.Type == wire.Look {
		err = r.onLook(p, h)
	}
	if err != nil || !fresh {
		return err
	}
	p.current = h.Seq
	switch {
	case p.in.active && h.Type != wire.Abort: // its payload was being placed when the connection broke
		err = r.fill(p, h, payload)
	case h.Type == wire.Data, h.Type == wire.Got, h.Type == wire.Put, h.Type == wire.Acc:
		// A payload that has arrived with its frame is handled like one that the link places.
		if _, err = r.destination(p, h); err == nil {
			err = r.fill(p, h, payload)
		}
	case h.Type == wire.Yield:
		r.onYield(p, h)
	case h.Type == wire.Yielded:
		err = r.onYielded(p, h)
	default:
		err = r.user.Frame(id, h, payload)
	}
	if err != nil {
		return err
	}
	return r.arrived(p, h)
}

// fill copies a payload that has arrived with its frame to its destination.
func (r *Room) fill(p *Peer, h *wire.Header, payload []byte) error {
	if !p.in.is(h) {
		return changed(h)
	}
	copy(r.ports.Bytes(p.in.dst), payload)
	return r.placed(p)
}

// is reports whether h is the frame whose payload is being placed.
func (in *inbound) is(h *wire.Header) bool { return in.head.Seq == h.Seq && in.head.Length == h.Length }

func changed(h *wire.Header) error {
	return fmt.Errorf("%w: frame %d changed when it was sent again", link.ErrProtocol, h.Seq)
}

// Place returns where the payload of h goes. Until Placed, or the end of the connection, the link
// writes to that memory, and the frame must not be completed otherwise, such as by a ring: the link's
// remaining writes would go to the memory's next owner.
func (r *Room) Place(now int64, id link.Peer, h *wire.Header) (link.Ref, error) {
	r.now = now
	p := &r.peers[id]
	fresh, err := r.accept(p, h)
	if err != nil {
		return link.Ref{}, err
	}
	if p.in.link = fresh; !fresh {
		return link.Ref{Region: RegionDiscard, Len: uint64(h.Length)}, nil
	}
	return r.destination(p, h)
}

// destination returns the destination of the payload of the next frame.
func (r *Room) destination(p *Peer, h *wire.Header) (link.Ref, error) {
	if p.in.active {
		if !p.in.is(h) {
			return link.Ref{}, changed(h)
		}
		return p.in.dst, nil
	}
	p.current = h.Seq
	at, err := r.user.Destination(p.id, h)
	if err != nil {
		return link.Ref{}, err
	}
	p.in.active, p.in.head, p.in.dst = true, *h, at
	return at, nil
}

// Placed reports that the payload of the frame last placed is complete.
func (r *Room) Placed(now int64, id link.Peer) error {
	r.now = now
	p := &r.peers[id]
	if !p.in.link {
		return nil // a repeated frame, discarded
	}
	p.in.link = false
	return r.arrivedWhole(p)
}

// arrivedWhole completes the frame whose payload was placed.
func (r *Room) arrivedWhole(p *Peer) error {
	if !p.in.active {
		return nil
	}
	h := p.in.head
	if err := r.placed(p); err != nil {
		return err
	}
	return r.arrived(p, &h)
}

// placed hands the frame whose payload is at its destination to the user.
func (r *Room) placed(p *Peer) error {
	h, at := p.in.head, p.in.dst
	p.Abandon()
	return r.user.Placed(p.id, &h, at)
}

// Delivery that the link confirms itself (link.Caps.Delivers; P§3.2). An eager send from the
// application's buffer ends when its bytes cannot be needed again:
//
//	application     this engine          link             peer's link     peer's engine
//	Send ─────────► Eager, gathered ───► SEND ──────────►  receive
//	                                          ◄── hardware's ack
//	     ◄── OpDone Delivered ◄───────── completion                ─────► Eager
//	                acknowledged ◄──────────────────────── Ack on its next frame
//
// No frame of the peer's engine is needed for that. In paper 000 §1 the send, too, "finalizes the
// communication as soon as the data is reliably transferred to the other side", without an
// acknowledgement of MPI; paper 002 §1 says that the reliability of the connection permits it. Neither
// paper makes a broken connection again: package link's rule of Delivery says what must hold then.
// Only memory is released by a confirmation. What means that the peer has handled a frame (a put, an
// answer, a goodbye) waits for the acknowledgement.

// Delivered reports that the link has confirmed the frames to a peer up to number seq.
func (r *Room) Delivered(now int64, id link.Peer, seq uint64) {
	r.now = now
	p := &r.peers[id]
	o := &p.out
	if seq = min(seq, o.Last()); seq <= o.Kept() {
		return
	}
	if seq > o.Next() {
		r.skip(o, seq)
	}
	from := o.Kept()
	o.Confirm(seq)
	for s := from + 1; s <= seq; s++ {
		f := o.At(s)
		if s <= p.unmet && f.Head.Type == wire.Eager {
			continue // it was not known which ranks have left there: the peer's acknowledgement shows it
		}
		if a, ok := o.Deliver(s); ok {
			r.user.Released(id, a, f)
		}
	}
}
