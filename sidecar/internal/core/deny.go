package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A peer that was given up may go on all the same: its process was stopped, or
// the network was. Here everything of it has ended; there its ranks wait for
// messages that nobody will send. So when it connects again, it is told:
//
//	peer                           this sidecar, to which the peer is dead
//	connects                       peerDenied
//	Ack: what it has received      Ack 0: nothing of it counts any more
//	                               Abort, numbered after what it has received
//	fails its job; Ack             closes the connection: peerDead
//
// The same answer serves a peer that was started again and knows of nothing: its
// Ack is 0, and so is what this side says (P§7).

// connectedDead answers the connection of a dead peer.
func (c *Core) connectedDead(p *peer) {
	if c.fail == nil && p.loss == nil {
		c.ports.Disconnect(p.id) // neither needs the other
		return
	}
	p.state, p.greet, p.denial, p.downAt = peerDenied, true, 0, c.now
	p.arrivals = channel.Arrivals{}
	p.credit.Renew(c.cfg.CreditBytes)
	c.watch(p)
	c.touch(p)
}

// ackMost is more frames than any sidecar has sent: behind it there may be no
// number left for an Abort.
const ackMost = 1 << 62

// deny takes a frame of a peer that is being denied: only what it acknowledges
// counts.
func (c *Core) deny(p *peer, h *wire.Header) {
	switch {
	case p.denial == 0 && h.Ack > ackMost:
		c.endDenial(p)
	case p.denial == 0:
		c.dropOutbox(p) // emitted since its death, to nobody
		p.out.Restart(h.Ack)
		f := c.fail
		if f == nil {
			f = p.loss
		}
		c.emitAbort(p, f)
		p.denial = p.out.Last()
	case h.Ack >= p.denial:
		c.endDenial(p)
	}
}

// endDenial closes the connection: the peer knows, or has had its time.
func (c *Core) endDenial(p *peer) {
	p.state = peerDead
	c.closeRings(p)
	c.ports.Disconnect(p.id)
	c.dropOutbox(p)
	c.startSweep() // of what was asked for meanwhile
}

// PeerLost reports that a peer is not what it was, though it may be connected:
// its process was started again.
func (c *Core) PeerLost(now int64, id link.Peer, cause error) {
	c.now = now
	if p := &c.peers[id]; p.state != peerDead && p.state != peerDenied {
		c.peerDied(p, cause)
	}
}
