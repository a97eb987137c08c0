package channel

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// A peer that was given up may go on: its process was stopped, or the network was. Here
// everything of it has ended; there its ranks wait for messages that are never sent. So when
// it connects again, it is told:
//
//	peer                           this sidecar, to which the peer is dead
//	connects                       Rejected
//	Ack: what it has received      Ack 0: nothing of it counts any more
//	                               Abort, numbered after what it has received
//	fails its job; Ack             closes the connection: Dead
//
// The same answer serves a peer that was started again and knows of nothing: its
// Ack is 0, and so is what this side says (P§7).

// connectedDead answers the connection of a dead peer.
func (r *Room) connectedDead(p *Peer) {
	if !r.user.Rejects(p.id) {
		r.ports.Disconnect(p.id) // neither needs the other
		return
	}
	p.state, p.greet, p.denial, p.times.down = Rejected, true, 0, r.now
	p.arrivals = Arrivals{}
	p.credit.Renew(r.cfg.CreditBytes)
	r.Watch(p)
	r.Touch(p)
}

// ackMost is more frames than any sidecar has sent: behind it there may be no
// number left for an Abort.
const ackMost = 1 << 62

// reject takes a frame of a peer that is being rejected: only what it acknowledges
// counts.
func (r *Room) reject(p *Peer, h *wire.Header) {
	switch {
	case p.denial == 0 && h.Ack > ackMost:
		r.endRejection(p)
	case p.denial == 0:
		r.drop(p) // frames that were emitted since its death
		p.out.Restart(h.Ack)
		r.user.Reject(p.id)
		p.denial = p.out.Last()
	case h.Ack >= p.denial:
		r.endRejection(p)
	}
}

// endRejection closes the connection: the peer knows, or its time is up.
func (r *Room) endRejection(p *Peer) {
	r.Bury(p)
	r.user.Rejected(p.id)
}
