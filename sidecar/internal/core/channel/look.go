package channel

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The notification of a write costs both sides as much as the rest of a small message: a completion,
// and a receive that is posted again. Its purpose is to wake an engine that sleeps. An engine that is
// awake polls its rings in each turn and needs no notifications. It says so by a frame Look to peers
// from which many frames come, and takes that back before it sleeps (P§5.7).
//
//	sender                        receiver
//	write, notified ────────────▶ taken; the LookAfter-th without a sleep
//	              ◀────────────── Look 1
//	write         ──────────────▶ taken
//	write         ──╮
//	              ◀─│──────────── Look 0, acknowledges the first; polls once more: nothing
//	                ╰───────────▶ (sleeps)
//	writes ended: Ack ──────────▶ wakes, polls: taken

// moderate turns the notifications of p's writes off after many frames without a sleep. It is called
// when frames were read out of p's ring.
func (r *Room) moderate(p *Peer) {
	in := &p.rings.in
	if in.Ordered() && p.caps.Notify && p.rings.moderation.TurnOff(in.Taken(), r.cfg.LookAfter) {
		r.Touch(p)
	}
}

// PrepareSleep must be called before each sleep. It reports whether peers must be notified
// that writes need their notifications again, or silent rings were not polled in this turn: then
// another turn posts that, and polls once more.
func (r *Room) PrepareSleep() (again bool) {
	again = r.visits.mustLook()
	for _, id := range r.lanes {
		p := &r.peers[id]
		if p.rings.moderation.TurnOn(p.rings.in.Taken()) {
			r.Touch(p)
			again = true
		}
	}
	return again
}

// postLook sends p whether its writes need notifications.
func (r *Room) postLook(p *Peer, to Poster) bool {
	p.ackFrame.Head = wire.Header{Type: wire.Look, Ack: p.arrivals.Last(), Credit: p.credit.Grant()}
	if p.rings.moderation.Off() {
		p.ackFrame.Head.A = 1
	}
	if to.Post(p.id, p.ackFrames[:]) == 0 {
		return false
	}
	r.acked(p)
	return true
}

// onLook handles a peer's frame Look. If the peer may sleep, a write that was not notified and is not
// acknowledged may have come after its last poll: a frame has to wake the peer.
func (r *Room) onLook(p *Peer, h *wire.Header) error {
	if h.A > 1 {
		return fmt.Errorf("%w: look %d", link.ErrProtocol, h.A)
	}
	p.rings.out.SetPeerPolls(h.A == 1)
	if h.A == 0 && p.rings.out.Unnotified(p.out.Base()) {
		p.rings.bell = true
		r.Touch(p)
	}
	return nil
}
