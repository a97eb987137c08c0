package channel

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A write's notice costs both sides as much as the rest of a small message: a
// completion, and a receive that is posted again. It is what wakes an engine that
// sleeps. One that is awake looks at its rings in every turn, and needs none: it says
// so to the peers of which much comes, and takes that back before it sleeps (P§5.7).
//
//	sender                        receiver
//	write, notice ──────────────▶ taken; the lookAfter-th without a sleep
//	              ◀────────────── Look 1
//	write         ──────────────▶ taken
//	write         ──╮
//	              ◀─│──────────── Look 0, acknowledges the first; a last look: nothing
//	                ╰───────────▶ (sleeps)
//	writes ended: Ack ──────────▶ wakes, looks: taken

// looked is told that frames were taken out of p's ring.
func (r *Room) looked(p *Peer) {
	in := &p.rings.in
	if in.Ordered() && p.caps.Notify && p.rings.notices.Awake(in.Taken(), r.cfg.LookAfter) {
		r.Touch(p)
	}
}

// Doze is to be asked before every sleep. It reports that peers are being told that
// writes need their notices again: another turn posts that, and looks once more.
func (r *Room) Doze() (again bool) {
	for _, id := range r.lanes {
		p := &r.peers[id]
		if p.rings.notices.Sleep(p.rings.in.Taken()) {
			r.Touch(p)
			again = true
		}
	}
	return again
}

// postLook tells p whether its writes need notices.
func (r *Room) postLook(p *Peer, to Poster) bool {
	p.ackFrame.Head = wire.Header{Type: wire.Look, Ack: p.arrivals.Last(), Credit: p.credit.Grant()}
	if p.rings.notices.Off() {
		p.ackFrame.Head.A = 1
	}
	if to.Post(p.id, p.ackFrames[:]) == 0 {
		return false
	}
	r.acked(p)
	return true
}

// onLook takes a peer's word about its looks. What was written without a notice and is
// not acknowledged may have come after the last of them: a frame wakes the peer.
func (r *Room) onLook(p *Peer, h *wire.Header) error {
	if h.A > 1 {
		return fmt.Errorf("%w: look %d", link.ErrProtocol, h.A)
	}
	p.rings.out.Looked(h.A == 1)
	if h.A == 0 && p.rings.out.Unheard(p.out.Base()) {
		p.rings.bell = true
		r.Touch(p)
	}
	return nil
}
