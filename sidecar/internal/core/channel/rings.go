package channel

import (
	"fmt"
	"math/bits"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Small eager frames are written into a ring of the peer if the link can write remotely
// (P§5.7). Package eagerring decides the bytes and offsets of the writes, which are started
// here.

// ringMemory returns the memory of the ring that p writes to, or, if out is set, the memory from which
// p's own ring is written. Preconditions: p.rings.lane >= 0.
func (r *Room) ringMemory(p *Peer, out bool) link.Ref {
	n := r.cfg.Rings.Bytes()
	off := uint64(p.rings.lane) * r.cfg.laneBytes()
	if out {
		off += n
	}
	return link.Ref{Region: RegionRings, Off: off, Len: n}
}

// fast gives p a lane if there is one left.
func (r *Room) fast(p *Peer) bool {
	if p.rings.lane < 0 && len(r.lanes) < r.cfg.FastPeers {
		p.rings.lane = len(r.lanes)
		r.lanes = append(r.lanes, p.id)
		r.visits.add()
	}
	return p.rings.lane >= 0
}

// openRing registers a new ring for p, which is offered after the greeting.
func (r *Room) openRing(p *Peer) {
	can := p.caps.Write && (p.caps.InOrder || p.caps.Notify)
	if p.self || !can || !r.fast(p) {
		return
	}
	mem := r.ringMemory(p, false)
	clear(r.ports.Bytes(mem))
	key, err := r.ports.Register(p.id, mem)
	if err != nil {
		r.stats.Unregistered++
		return
	}
	p.rings.count++
	p.rings.in, p.rings.moderation, p.rings.offer, p.rings.key = eagerring.Receiver{}, Moderation{}, true, key
	p.rings.in.Open(r.cfg.Rings, p.caps, p.rings.count, r.ports.Bytes(mem))
	r.visits.use(p.rings.lane)
	r.stats.Rings++
}

// closeRings closes both rings of a connection that has ended.
func (r *Room) closeRings(p *Peer) {
	if p.rings.in.IsOpen() {
		r.ports.Deregister(p.id, p.rings.key)
		r.stats.Rings--
	}
	p.rings, p.in.link = rings{lane: p.rings.lane, count: p.rings.count}, false
}

// postOffer sends p the offer of its ring.
func (r *Room) postOffer(p *Peer, to Poster) bool {
	f := &p.ackFrame
	body := p.rings.in.Offer(p.rings.key)
	f.Head = wire.Header{Type: wire.Ring, Ack: p.arrivals.Last(), Credit: p.credit.Grant()}
	f.Head.Length = uint32(body.Encode(f.Inline[:]))
	return to.Post(p.id, p.ackFrames[:]) > 0
}

// onRing handles a peer's offer of a ring.
func (r *Room) onRing(p *Peer, payload []byte) error {
	var body wire.RingBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	if !p.caps.Write {
		return fmt.Errorf("%w: ring over a link that does not write remotely", link.ErrProtocol)
	}
	if p.rings.out.IsOpen() || !r.fast(p) {
		return nil // small frames go by the connection
	}
	var own []byte
	if p.rings.in.IsOpen() {
		own = r.ports.Bytes(r.ringMemory(p, false))
	}
	if p.rings.out.Open(r.cfg.Rings, p.caps, &body, p.rings.count+1, r.ports.Bytes(r.ringMemory(p, true)), own) {
		p.rings.count++
	}
	return nil
}

// post sends the first of frames by p's ring or link, and returns how many it has sent. Frames and
// writes may overtake each other. So that neither waits at the peer for long, a frame is sent only
// when all writes have ended.
func (r *Room) post(p *Peer, to Poster, frames []*link.Frame) int {
	out := &p.rings.out
	if out.IsOpen() && out.Fits(frames[0]) && r.writeRing(p, frames[0]) {
		return 1
	}
	if out.InFlight() > 0 {
		return 0
	}
	if !out.IsOpen() {
		return to.Post(p.id, frames)
	}
	n := 1
	for n < len(frames) && !out.Fits(frames[n]) {
		n++
	}
	return to.Post(p.id, frames[:n])
}

// writeRing writes a frame into the ring, if it has room.
func (r *Room) writeRing(p *Peer, f *link.Frame) bool {
	payload := f.Inline[:min(f.Head.Length, link.InlineMax)]
	if f.Payload.Region != RegionNone {
		payload = r.ports.Bytes(f.Payload)[:f.Head.Length]
	}
	cast := r.mayCast(p)
	writes := p.rings.out.Put(f, payload, p.out.Base())
	for i, w := range writes {
		if cast = cast && r.castRing(p, w); cast {
			continue
		}
		if !r.startRing(p, f, w) {
			p.rings.out.Refused(len(writes) - i)
			return false
		}
	}
	if len(writes) > 0 {
		r.stats.RingFrames++
	}
	return len(writes) > 0
}

// mayCast reports whether a write to p's ring may be a cast: a write whose end is not reported. While
// other writes are under way it may not, since a cast could overtake them.
func (r *Room) mayCast(p *Peer) bool { return r.cfg.Caster != nil && p.rings.out.InFlight() == 0 }

// castRing starts a cast to p's ring. Frames that are posted later arrive later. It reports false if
// the link does not take it.
func (r *Room) castRing(p *Peer, w eagerring.Write) bool {
	if w.Payload {
		return false // a rank's memory
	}
	notify := uint64(0)
	if p.caps.Notify {
		notify = p.rings.out.Notification(w)
	}
	if !r.cfg.Caster.Cast(p.id, p.rings.out.Bytes(w), p.rings.out.Key(w), notify) {
		return false
	}
	return !p.rings.out.Ended(nil)
}

// startRing starts a write to p's ring. It reports false if the link refuses it.
func (r *Room) startRing(p *Peer, f *link.Frame, w eagerring.Write) bool {
	src := r.ringMemory(p, true).Slice(w.At, w.Len)
	if w.Payload {
		src = f.Payload.Slice(0, w.Len)
	}
	notify := uint64(0)
	if p.caps.Notify {
		notify = p.rings.out.Notification(w)
	}
	return r.user.WriteRing(p.id, p.rings.out.Number(), src, p.rings.out.Key(w), notify) == nil
}

// RingWritten reports the end of a write to a peer's ring (Handler.WriteRing).
func (r *Room) RingWritten(id link.Peer, number uint64, err error) {
	p := &r.peers[id]
	if p.rings.out.Number() != number {
		return // the write was to the ring of an earlier connection
	}
	if p.rings.out.Ended(err) {
		r.rewind(p)
	}
	if p.out.UnpostedFrames() > 0 || p.rings.bell { // they may have waited for this write
		r.Touch(p)
	}
}

// Notified reports a write of a peer into its ring (link.Sink.Written).
func (r *Room) Notified(id link.Peer, notify uint64) error {
	p := &r.peers[id]
	r.visits.use(p.rings.lane)
	return p.rings.in.Notified(notify, p.rings.count)
}

// PollRings takes frames out of the rings that peers write to, those of silent peers now and then, and
// returns how many slots it has emptied.
func (r *Room) PollRings() int {
	work := 0
	r.visits.begin(r.now)
	for i := range r.visits.each {
		lanes := r.visits.word(i)
		r.stats.RingVisits += uint64(bits.OnesCount64(lanes))
		for ; lanes != 0; lanes &= lanes - 1 {
			if p := &r.peers[r.lanes[64*i+bits.TrailingZeros64(lanes)]]; p.state == Ready && p.rings.in.Changed() {
				work += r.pollRing(p)
			}
		}
	}
	r.visits.end(r.now)
	return work
}

// pollRing takes frames out of the ring of p, and returns how many slots it has emptied.
func (r *Room) pollRing(p *Peer) int {
	before := p.rings.in.Taken()
	if err := r.drainRing(p); err != nil {
		r.LinkDown(r.now, p.id, err)
		return 0
	}
	return int(p.rings.in.Taken() - before)
}

// drainRing takes all frames out of the ring that are next in the sequence: at most one ring
// full, since a hostile peer could fill slots without end. A payload that the link is placing
// precedes them.
func (r *Room) drainRing(p *Peer) error {
	before := p.rings.in.Taken()
	for n := 0; n < eagerring.Slots && p.rings.in.Changed() && !p.in.link; n++ {
		if took, err := r.readRing(p); err != nil {
			return err
		} else if !took {
			break
		}
	}
	if taken := p.rings.in.Taken(); taken != before {
		r.stats.RingTaken += taken - before
		cast := r.mayCast(p)
		w, tell := p.rings.out.Emptied(taken)
		if tell && !(cast && r.castRing(p, w)) && !r.startRing(p, nil, w) {
			p.rings.out.Refused(1)
		}
		r.moderate(p)
	}
	return nil
}

// readRing reads the next part of a frame out of p's ring, if it is there and the frame is next in the
// sequence, and reports whether it did.
func (r *Room) readRing(p *Peer) (bool, error) {
	f := &r.part
	if ok, err := p.rings.in.Next(p.arrivals.Last()+1, f); !ok || err != nil {
		return false, err
	}
	var err error
	if f.Whole {
		err = r.Deliver(r.now, p.id, &f.Head, f.Payload)
	} else {
		err = r.readPart(p, f)
	}
	p.rings.in.Wipe()
	return true, err
}

// readPart copies a part of a frame to its destination, unless the frame has arrived already.
func (r *Room) readPart(p *Peer, f *eagerring.Frame) error {
	if f.Off == 0 {
		fresh, err := r.accept(p, &f.Head)
		if err == nil && fresh {
			_, err = r.destination(p, &f.Head)
		}
		if err != nil {
			return err
		}
	}
	if !p.in.active || p.in.head.Seq != f.Head.Seq {
		return nil
	}
	copy(r.ports.Bytes(p.in.dst.Slice(uint64(f.Off), uint64(len(f.Payload)))), f.Payload)
	if f.Last {
		return r.arrivedWhole(p)
	}
	return nil
}

// Polled reports whether there are rings that have to be polled, because peers do not notify their
// writes.
func (r *Room) Polled() bool {
	for _, id := range r.lanes {
		if p := &r.peers[id]; p.rings.in.IsOpen() && (!p.caps.Notify || p.rings.moderation.Changed()) {
			return true
		}
	}
	return false
}
