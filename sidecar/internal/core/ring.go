package core

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Small eager frames go by remote write into a ring of the peer's where the
// link can do that (P§5.7). A ring is only another carriage: numbers,
// acknowledgement and repetition of its frames are those of the outbox.

// Geometry of the rings that this sidecar offers, and the most that it uses of
// those that it is offered.
const (
	ringSlots = 16
	ringSlot  = 2 << 10 // bytes: header, payload, tail
	ringBytes = ringSlots * ringSlot
)

// laneBytes is what a fast peer has of RegionRings: the ring that it writes to,
// and the memory from which we write to its own.
const laneBytes = 2 * ringBytes

// RingBytes is the memory to give RegionRings.
func (c Config) RingBytes() uint64 { return uint64(c.fastPeers()) * laneBytes }

func (c *Config) fastPeers() int {
	switch {
	case c.FastPeers < 0:
		return 0
	case c.FastPeers == 0:
		return min(64, c.Pods)
	}
	return min(c.FastPeers, c.Pods)
}

// inRing is the ring that a peer writes to.
type inRing struct {
	open   bool
	offer  bool // the peer is still to be told
	key    link.Key
	first  uint32          // notice of the first slot
	taken  uint64          // frames taken out
	notice [ringSlots]bool // a write to the slot is complete
}

// outRing is the ring of a peer that we write to.
type outRing struct {
	open      bool
	number    uint64 // of the ring: ends of writes to others are told late
	key       link.Key
	notice    uint32
	slots     uint64
	slotBytes uint64
	written   uint64 // frames put in
	freed     uint64 // of them acknowledged
	underWay  int    // writes that have not ended
	seqs      [ringSlots]uint64
}

// ringMemory is a part of p's lane. Preconditions: p.lane >= 0.
func (p *peer) ringMemory(out bool, slot, n uint64) link.Ref {
	off := uint64(p.lane)*laneBytes + slot*ringSlot
	if out {
		off += ringBytes
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
	mem := p.ringMemory(false, 0, ringBytes)
	clear(c.ports.Bytes(mem))
	key, err := c.ports.Register(p.id, mem)
	if err != nil {
		c.stats.Unregistered++
		return
	}
	p.rings++
	p.ringIn = inRing{open: true, offer: true, key: key, first: uint32(p.rings%ringNotices*ringSlots + 1)}
	c.stats.Rings++
}

// ringNotices is how many rings have notices of their own before the first ones
// are used again.
const ringNotices = 1 << 24

// closeRings forgets both rings of a connection that is gone.
func (c *Core) closeRings(p *peer) {
	if p.ringIn.open {
		c.ports.Deregister(p.id, p.ringIn.key)
		c.stats.Rings--
	}
	p.ringIn, p.ringOut = inRing{}, outRing{}
}

// postOffer tells p of its ring.
func (c *Core) postOffer(p *peer, to Poster) bool {
	f := &p.ackFrame
	body := wire.RingBody{Key: p.ringIn.key.Key, Addr: p.ringIn.key.Addr, Slots: ringSlots, SlotBytes: ringSlot, Notice: p.ringIn.first}
	f.Head = wire.Header{Type: wire.Ring, Ack: p.recvSeq, Credit: p.grant}
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
	if p.ringOut.open || body.Slots > ringSlots || body.SlotBytes > ringSlot || !c.fast(p) {
		return nil // frames do as well
	}
	p.rings++
	p.ringOut = outRing{
		open: true, number: p.rings, notice: body.Notice, key: link.Key{Key: body.Key, Addr: body.Addr}, slots: uint64(body.Slots), slotBytes: uint64(body.SlotBytes),
	}
	return nil
}

// fitsRing reports whether a frame may go by a ring.
func (r *outRing) fits(f *link.Frame) bool {
	return f.Head.Type == wire.Eager && wire.TailOffset(f.Head.Length)+wire.TailBytes <= int(r.slotBytes)
}

// post hands the first of frames to p's ring or link, and returns how many it
// has handed over. Frames and writes may overtake each other, so that neither
// waits at the peer for long: a frame goes only when all writes have ended.
func (c *Core) post(p *peer, to Poster, frames []*link.Frame) int {
	r := &p.ringOut
	if !r.open {
		return to.Post(p.id, frames)
	}
	if r.fits(frames[0]) && c.writeRing(p, frames[0]) {
		return 1
	}
	if r.underWay > 0 {
		return 0
	}
	n := 1
	for n < len(frames) && !r.fits(frames[n]) {
		n++
	}
	return to.Post(p.id, frames[:n])
}

// writeRing carries a frame by the ring, if it has a slot free.
func (c *Core) writeRing(p *peer, f *link.Frame) bool {
	r := &p.ringOut
	for r.freed < r.written && r.seqs[r.freed%r.slots] <= p.out.base {
		r.freed++
	}
	if r.written-r.freed == r.slots {
		return false
	}
	slot, tail := r.written%r.slots, wire.TailOffset(f.Head.Length)
	src := p.ringMemory(true, slot, uint64(tail+wire.TailBytes))
	c.fillSlot(c.ports.Bytes(src), f, r.written+1)
	dst := r.key
	dst.Addr += slot * r.slotBytes
	notify := uint64(0)
	if p.caps.Notify {
		notify = uint64(r.notice) + slot
	}
	op, token := c.remotes.alloc()
	*op = remoteOp{kind: remoteRing, id: r.number}
	if err := c.ports.Write(p.id, token, src, dst, notify); err != nil {
		c.remotes.release(token)
		r.open = false
		return false
	}
	r.seqs[slot] = f.Head.Seq
	r.written++
	r.underWay++
	c.stats.RingFrames++
	return true
}

// fillSlot writes a frame as it lies in a slot.
func (c *Core) fillSlot(b []byte, f *link.Frame, number uint64) {
	f.Head.Encode((*[wire.HeaderBytes]byte)(b))
	payload := f.Inline[:]
	if f.Payload.Region != RegionNone {
		payload = c.ports.Bytes(f.Payload)
	}
	tail := len(b) - wire.TailBytes
	n := copy(b[wire.HeaderBytes:tail], payload[:f.Head.Length])
	clear(b[wire.HeaderBytes+n : tail])
	binary.LittleEndian.PutUint64(b[tail:], number)
}

// ringWritten is told of the end of a write to p's ring. After one that failed
// the frames of the ring go by the connection; those that had arrived are known
// by their numbers.
func (c *Core) ringWritten(p *peer, number uint64, err error) {
	if p.ringOut.number != number {
		return // of a connection that is gone, with all that was in the ring
	}
	p.ringOut.underWay--
	if err != nil {
		p.ringOut.open = false
		p.out.rewind()
	}
	c.touch(p)
}

// ringNotice is told that a peer's write to the ring is complete. Notices of the
// rings of lost connections come late, too, and mean nothing any more.
func (c *Core) ringNotice(p *peer, notice uint64) error {
	if notice == 0 || notice > p.rings*ringSlots+ringSlots && p.rings < ringNotices {
		return fmt.Errorf("%w: notice %d of no ring", link.ErrProtocol, notice)
	}
	if slot := notice - uint64(p.ringIn.first); p.ringIn.open && slot < ringSlots {
		p.ringIn.notice[slot] = true
	}
	return nil
}

// pollRings takes out what peers have written, and returns how many frames it were.
func (c *Core) pollRings() int {
	work := uint64(0)
	for _, id := range c.lanes {
		p := &c.peers[id]
		if p.state != peerReady {
			continue
		}
		before := p.ringIn.taken
		if err := c.drainRing(p); err != nil {
			c.LinkDown(c.now, id, err)
			continue
		}
		work += p.ringIn.taken - before
	}
	return int(work)
}

// drainRing takes out all that is there and whose turn has come.
func (c *Core) drainRing(p *peer) error {
	for p.ringIn.open {
		if took, err := c.takeRing(p); !took || err != nil {
			return err
		}
	}
	return nil
}

// Polled reports that there are rings of which only a look at their memory
// tells: whoever sleeps must not sleep for long.
func (c *Core) Polled() bool {
	for _, id := range c.lanes {
		if p := &c.peers[id]; p.ringIn.open && !p.caps.Notify {
			return true
		}
	}
	for _, id := range c.polled { // a read's end is told by its link
		if r := c.recvs.get(id); r != nil && r.offered && !c.peerOf(r.from).caps.Notify {
			return true
		}
	}
	return false
}

// takeRing takes the next frame out of p's ring if it is there and its turn
// has come. Every byte is a stranger's and may change while we look: the header
// is copied once and judged then.
func (c *Core) takeRing(p *peer) (bool, error) {
	r := &p.ringIn
	slot := r.taken % ringSlots
	b := c.ports.Bytes(p.ringMemory(false, slot, ringSlot))
	if !p.caps.InOrder && !r.notice[slot] {
		return false, nil
	}
	head := *(*[wire.HeaderBytes]byte)(b)
	n := binary.LittleEndian.Uint32(head[4:])
	if n > ringSlot-wire.HeaderBytes-wire.TailBytes {
		return false, nil // half a header, or one of nobody: its tail cannot come
	}
	tail := wire.TailOffset(n)
	if binary.LittleEndian.Uint64(b[tail:]) != r.taken+1 {
		return false, nil
	}
	var h wire.Header
	// With its tail in place the frame is whole: once more, then.
	head = *(*[wire.HeaderBytes]byte)(b)
	if err := h.Decode(&head); err != nil {
		return false, fmt.Errorf("%w: %w", link.ErrProtocol, err)
	}
	switch {
	case h.Type != wire.Eager || h.Length != n:
		return false, fmt.Errorf("%w: %v of %d bytes in a ring", link.ErrProtocol, h.Type, h.Length)
	case h.Seq > p.recvSeq+1:
		return false, nil // frames before it are under way
	}
	r.taken++
	r.notice[slot] = false
	return true, c.Deliver(c.now, p.id, &h, b[wire.HeaderBytes:wire.HeaderBytes+n])
}
