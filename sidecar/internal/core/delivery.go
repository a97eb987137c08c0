package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Delivery that the link tells by itself (link.Caps.Delivers; P§3.2). An eager send from
// the application's buffer has ended when its bytes will not be needed again:
//
//	application     this engine          link             peer's link     peer's engine
//	Send ─────────► Eager, gathered ───► SEND ──────────►  receive
//	                                          ◄── hardware's ack
//	     ◄── OpDone Delivered ◄───────── completion                ─────► Eager
//	                acknowledged ◄──────────────────────── Ack on its next frame
//
// So no frame of the peer's engine is asked for. Paper 000 §1 has the same: the send
// "finalizes the communication as soon as the data is reliably transferred to the other
// side", without an acknowledgement of MPI's; paper 002 §1 says that the reliability of
// the connection is what allows for it. Neither makes a broken connection again: what
// must hold then is link's rule of Delivery. Only the memory is let go of here. What
// says that the peer has dealt with a frame (a put that its target has, an answer that
// was taken out, a goodbye that was heard) waits for the acknowledgement.

// Delivered reports that the frames to a peer up to number seq have come.
func (c *Core) Delivered(now int64, id link.Peer, seq uint64) {
	c.now = now
	p := &c.peers[id]
	o := &p.out
	if seq = min(seq, o.Last()); seq <= o.Kept() {
		return
	}
	if seq > o.Next() {
		c.notAgain(o, seq)
	}
	from := o.Kept()
	o.Confirm(seq)
	for s := from + 1; s <= seq; s++ {
		f := o.At(s)
		if s <= p.unmet && f.Head.Type == wire.Eager {
			continue // who has left there was not known: its engine's acknowledgement says it (taken)
		}
		if a, ok := o.Deliver(s); ok {
			c.released(p, a, f)
		}
	}
}

// notAgain counts frames as posted that have come although they were to be posted
// again: on a connection, or by a ring, that is gone. Preconditions: seq > o.Next().
func (c *Core) notAgain(o *channel.Outbox, seq uint64) {
	c.shift(o, o.Next(), seq, -1)
	o.Skip(seq)
}

// greeted compares what a peer says that it has with what was told of delivery. One
// that begins with 0 may have given this sidecar up: its next frame says so (deny.go).
func (p *peer) greeted(h *wire.Header) error {
	p.knowsElem = h.A&wire.FeatureElem != 0
	p.forgets = h.Ack < p.out.Came()
	if p.forgets && h.Ack > 0 {
		return p.forgotten(h.Ack)
	}
	return nil
}

// forgotten is what is wrong with a peer that asks for frames whose memory is another's.
func (p *peer) forgotten(ack uint64) error {
	return fmt.Errorf("%w: asks for frame %d again, and its device had confirmed all up to %d: the device, or its driver, has lost what it had taken in", link.ErrProtocol, ack+1, p.out.Came())
}
