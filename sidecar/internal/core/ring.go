package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/carriage"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Small eager frames go by remote write into a ring of the peer's where the link
// can do that (P§5.7): package carriage says how, and what it wants written is
// written here.

// RingBytes is the memory to give RegionRings.
func (c Config) RingBytes() uint64 { return uint64(c.fastPeers()) * c.laneBytes() }

// laneBytes is what a fast peer has of RegionRings: the ring that it writes to,
// and the memory from which we write to its own.
func (c *Config) laneBytes() uint64 { return 2 * c.Channel.Bytes() }

func (c *Config) fastPeers() int {
	switch {
	case c.FastPeers < 0:
		return 0
	case c.FastPeers == 0:
		return min(64, c.Pods)
	}
	return min(c.FastPeers, c.Pods)
}

// ringIn is the ring that a peer writes to.
type ringIn struct {
	carriage.Receiver
	notices channel.Notices
	offer   bool // the peer is still to be told
	key     link.Key
}

// ringMemory is the ring that p writes to, or the copy of its own. Preconditions:
// p.lane >= 0.
func (c *Core) ringMemory(p *peer, out bool) link.Ref {
	n := c.cfg.Channel.Bytes()
	off := uint64(p.lane) * c.cfg.laneBytes()
	if out {
		off += n
	}
	return link.Ref{Region: RegionRings, Off: off, Len: n}
}

// fast gives p a lane if there is one left.
func (c *Core) fast(p *peer) bool {
	if p.lane < 0 && len(c.lanes) < c.cfg.fastPeers() {
		p.lane = len(c.lanes)
		c.lanes = append(c.lanes, p.id)
	}
	return p.lane >= 0
}

// openRing registers a fresh ring for p, to be offered with the greeting.
func (c *Core) openRing(p *peer) {
	can := p.caps.Write && (p.caps.InOrder || p.caps.Notify)
	if p.self || !can || !c.fast(p) {
		return
	}
	mem := c.ringMemory(p, false)
	clear(c.ports.Bytes(mem))
	key, err := c.ports.Register(p.id, mem)
	if err != nil {
		c.stats.Unregistered++
		return
	}
	p.rings++
	p.ringIn = ringIn{offer: true, key: key}
	p.ringIn.Open(c.cfg.Channel, p.caps, p.rings, c.ports.Bytes(mem))
	c.stats.Rings++
}

// closeRings forgets both rings of a connection that is gone.
func (c *Core) closeRings(p *peer) {
	if p.ringIn.IsOpen() {
		c.ports.Deregister(p.id, p.ringIn.key)
		c.stats.Rings--
	}
	p.ringIn, p.ringOut, p.bell, p.placing = ringIn{}, carriage.Sender{}, false, false
}

// postOffer tells p of its ring.
func (c *Core) postOffer(p *peer, to Poster) bool {
	f := &p.ackFrame
	body := p.ringIn.Offer(p.ringIn.key)
	f.Head = wire.Header{Type: wire.Ring, Ack: p.arrivals.Last(), Credit: p.credit.Grant()}
	f.Head.Length = uint32(body.Encode(f.Inline[:]))
	return to.Post(p.id, p.ackFrames[:]) > 0
}

// onRing takes a peer's offer.
func (c *Core) onRing(p *peer, payload []byte) error {
	var body wire.RingBody
	if err := body.Decode(payload); err != nil {
		return fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	if !p.caps.Write {
		return fmt.Errorf("%w: ring over a link that does not write remotely", link.ErrProtocol)
	}
	if p.ringOut.IsOpen() || !c.fast(p) {
		return nil // frames do as well
	}
	var own []byte
	if p.ringIn.IsOpen() {
		own = c.ports.Bytes(c.ringMemory(p, false))
	}
	if p.ringOut.Open(c.cfg.Channel, p.caps, &body, p.rings+1, c.ports.Bytes(c.ringMemory(p, true)), own) {
		p.rings++
	}
	return nil
}

// post hands the first of frames to p's ring or link, and returns how many it
// has handed over. Frames and writes may overtake each other, so that neither
// waits at the peer for long: a frame goes only when all writes have ended.
func (c *Core) post(p *peer, to Poster, frames []*link.Frame) int {
	r := &p.ringOut
	if r.IsOpen() && r.Fits(frames[0]) && c.writeRing(p, frames[0]) {
		return 1
	}
	if r.UnderWay() > 0 {
		return 0
	}
	if !r.IsOpen() {
		return to.Post(p.id, frames)
	}
	n := 1
	for n < len(frames) && !r.Fits(frames[n]) {
		n++
	}
	return to.Post(p.id, frames[:n])
}

// writeRing carries a frame by the ring, if it has room.
func (c *Core) writeRing(p *peer, f *link.Frame) bool {
	payload := f.Inline[:min(f.Head.Length, link.InlineMax)]
	if f.Payload.Region != RegionNone {
		payload = c.ports.Bytes(f.Payload)[:f.Head.Length]
	}
	cast := c.mayCast(p)
	writes := p.ringOut.Put(f, payload, p.out.Base())
	for i, w := range writes {
		if cast = cast && c.castRing(p, w); cast {
			continue
		}
		if !c.startRing(p, f, w) {
			p.ringOut.Refused(len(writes) - i)
			return false
		}
	}
	if len(writes) > 0 {
		c.stats.RingFrames++
	}
	return len(writes) > 0
}

// mayCast reports that a write to p's ring may be one whose end is not told. Those
// that are told of may be behind it on their way, and some channels need an order.
func (c *Core) mayCast(p *peer) bool { return c.cfg.Caster != nil && p.ringOut.UnderWay() == 0 }

// castRing starts a write to p's ring whose end is not told: frames that are posted
// after it come after it. false: the link does not take it so.
func (c *Core) castRing(p *peer, w carriage.Write) bool {
	if w.Payload {
		return false // a rank's memory
	}
	notify := uint64(0)
	if p.caps.Notify {
		notify = p.ringOut.Notice(w)
	}
	if !c.cfg.Caster.Cast(p.id, p.ringOut.Bytes(w), p.ringOut.Key(w), notify) {
		return false
	}
	return !p.ringOut.Ended(nil)
}

// startRing starts a write to p's ring; false: the link refuses it.
func (c *Core) startRing(p *peer, f *link.Frame, w carriage.Write) bool {
	src := c.ringMemory(p, true).Slice(w.At, w.Len)
	if w.Payload {
		src = f.Payload.Slice(0, w.Len)
	}
	notify := uint64(0)
	if p.caps.Notify {
		notify = p.ringOut.Notice(w)
	}
	op, token := c.remotes.Alloc()
	*op = remoteOp{kind: remoteRing, id: p.ringOut.Number()}
	if err := c.ports.Write(p.id, token, src, p.ringOut.Key(w), notify); err != nil {
		c.remotes.Release(token)
		return false
	}
	return true
}

// ringWritten is told of the end of a write to p's ring.
func (c *Core) ringWritten(p *peer, number uint64, err error) {
	if p.ringOut.Number() != number {
		return // of a connection that is gone, with all that was in the ring
	}
	if p.ringOut.Ended(err) {
		c.rewind(p)
	}
	if p.out.UnpostedFrames() > 0 || p.bell { // which may have waited for it
		c.touch(p)
	}
}

// pollRings takes out what peers have written, and returns how many frames it were.
func (c *Core) pollRings() int {
	work := uint64(0)
	for _, id := range c.lanes {
		p := &c.peers[id]
		if p.state != peerReady || !p.ringIn.Changed() {
			continue
		}
		before := p.ringIn.Taken()
		if err := c.drainRing(p); err != nil {
			c.LinkDown(c.now, id, err)
			continue
		}
		work += p.ringIn.Taken() - before
	}
	return int(work)
}

// drainRing takes out all that is there and whose turn has come: a ring at most, since a
// correct peer fills no slot again before it is told, and one that does goes on for ever.
// What a link is still placing comes first.
func (c *Core) drainRing(p *peer) error {
	before := p.ringIn.Taken()
	for n := 0; n < carriage.Slots && p.ringIn.Changed() && !p.placing; n++ {
		if took, err := c.takeRing(p); err != nil {
			return err
		} else if !took {
			break
		}
	}
	if taken := p.ringIn.Taken(); taken != before {
		c.stats.RingTaken += taken - before
		cast := c.mayCast(p)
		w, tell := p.ringOut.Emptied(taken)
		if tell && !(cast && c.castRing(p, w)) && !c.startRing(p, nil, w) {
			p.ringOut.Refused(1)
		}
		c.looked(p)
	}
	return nil
}

// takeRing takes the next part of a frame out of p's ring if it is there and its
// turn has come.
func (c *Core) takeRing(p *peer) (bool, error) {
	f := &c.part
	if ok, err := p.ringIn.Next(p.arrivals.Last()+1, f); !ok || err != nil {
		return false, err
	}
	var err error
	if f.Whole {
		err = c.Deliver(c.now, p.id, &f.Head, f.Payload)
	} else {
		err = c.takePart(p, f)
	}
	p.ringIn.Wipe()
	return true, err
}

// takePart places a part of a frame, unless the frame has come by the connection
// meanwhile, or had come before.
func (c *Core) takePart(p *peer, f *carriage.Frame) error {
	if f.Off == 0 {
		fresh, err := c.accept(p, &f.Head)
		if err == nil && fresh {
			_, err = c.placeFresh(p, &f.Head)
		}
		if err != nil {
			return err
		}
	}
	if !p.in.active || p.in.head.Seq != f.Head.Seq {
		return nil
	}
	copy(c.ports.Bytes(p.in.dst.Slice(uint64(f.Off), uint64(len(f.Payload)))), f.Payload)
	if f.Last {
		return c.arrivedWhole(p)
	}
	return nil
}

// Polled reports that there is memory that only a look tells about: whoever sleeps
// must not sleep for long.
func (c *Core) Polled() bool {
	for _, id := range c.lanes {
		if p := &c.peers[id]; p.ringIn.IsOpen() && (!p.caps.Notify || p.ringIn.notices.Unsaid()) {
			return true
		}
	}
	for _, id := range c.polled { // a read's end is told by its link
		if r := c.recvs.Get(id); r != nil && r.offered && !c.peerOf(r.pattern.Source).caps.Notify {
			return true
		}
	}
	return false
}
