package channel

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
)

// A peer that was given up may still run: its process was stopped, or the network was interrupted.
// In this sidecar all that belongs to it has ended; its ranks wait for messages that are never sent.
// Therefore it is told when it connects again:
//
//	peer                           this sidecar, to which the peer is dead
//	connects                       Rejected
//	Ack: what it has received      Ack 0: no frame of it counts any more
//	                               Abort, numbered after what it has received
//	fails its job; Ack             closes the connection: Dead
//
// A peer that was started again gets the same answer: its Ack is 0 (P§7).

// connectedDead answers the connection of a dead peer.
func (r *Room) connectedDead(p *Peer) {
	if !r.user.Rejects(p.id) {
		r.ports.Disconnect(p.id) // neither side needs the other any more
		return
	}
	p.state, p.greet, p.denial, p.times.down = Rejected, true, 0, r.now
	p.arrivals = Arrivals{}
	p.credit.Renew(r.cfg.CreditFirst)
	r.Watch(p)
	r.Touch(p)
}

// ackMost is more frames than any sidecar has sent. After a larger number there may be none left for
// the Abort.
const ackMost = 1 << 62

// reject handles a frame of a peer that is being rejected: only its acknowledgement counts.
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

// endRejection closes the connection: the peer was notified, or its time is up.
func (r *Room) endRejection(p *Peer) {
	r.Bury(p)
	r.user.Rejected(p.id)
}
