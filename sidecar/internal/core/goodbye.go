package core

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Leave notes that no rank will attach any more. Attached ranks stay until they detach.
func (c *Core) Leave(now int64) {
	c.at(now)
	c.leaving = true
	for _, e := range c.hosted {
		if e.session == nil && !e.gone { // the rank has never attached
			c.leftOut(e)
		}
	}
	c.emitByes()
}

// emitByes reports to the peers that no rank is left here, so that the end of this sidecar is no
// failure. A peer that is connected later gets its Bye then (peerUp).
func (c *Core) emitByes() {
	if c.left {
		return
	}
	for _, e := range c.hosted {
		if !e.ended {
			return
		}
	}
	c.left = true
	for i := range c.peers {
		if p := &c.peers[i]; !p.Self() && p.State() != channel.Dead && p.State() != channel.Idle {
			c.emitBye(p)
		}
	}
}

// emitBye sends Bye to p, and asks for its acknowledgement.
func (c *Core) emitBye(p *peer) {
	f, _ := c.channel.Emit(p.Peer, wire.Bye)
	f.Head.Flags |= wire.FlagAckNow
	f.Head.A = p.takenNext()
	p.Pass()
	p.byeSeq = p.Out().Last()
}

// parted reports whether neither side needs the other any more: one has sent Bye and it is
// acknowledged, or both have sent it, and no other frame is on its way. If the job has failed, a side
// that knows of it needs nothing more.
func (p *peer) parted() bool {
	if p.knows && p.Out().Empty() {
		return true
	}
	if p.Settled() {
		return p.Gone() || p.byeSeq != 0
	}
	return p.Gone() && p.byeSeq == p.Out().Last() && p.Out().Base() == p.byeSeq-1
}

// Parted reports whether a peer and this sidecar do not need each other any more. The end of their
// connection is no fault then.
func (c *Core) Parted(id link.Peer) bool { return c.peers[id].parted() }

// Leftover is what would be lost if the sidecar ended now.
type Leftover struct {
	Sessions int // applications that are attached, or whose memory is still in use
	Sends    int // messages of applications that have left which are not received yet
	Peers    []PeerLeft
}

// PeerLeft has the frames that a peer has not acknowledged.
type PeerLeft struct {
	Peer    link.Peer
	Frames  int  // not acknowledged, without the goodbye and a question for credit
	Reached bool // there was a connection once
}

// None reports whether nothing is left.
func (l *Leftover) None() bool { return l.Sessions == 0 && l.Sends == 0 && len(l.Peers) == 0 }

// Leftover returns what would be lost now.
func (c *Core) Leftover() Leftover {
	var l Leftover
	if c.fail == nil {
		l.Sends = c.p2p.Orphans()
	}
	if c.onesided.Closing() {
		l.Sessions++ // the ranks that wait for their locks have to be notified
	}
	for _, s := range c.sessions {
		if s != nil {
			l.Sessions++
		}
	}
	for i := range c.peers {
		if p := &c.peers[i]; !p.Self() && c.owes(p) {
			frames := int(p.Out().Last() - p.Out().Base())
			if p.byeSeq > p.Out().Base() {
				frames--
			}
			if p.YieldFirst() {
				frames--
			}
			l.Peers = append(l.Peers, PeerLeft{Peer: p.ID(), Frames: frames, Reached: p.Known()})
		}
	}
	return l
}

// owes reports whether p has to receive frames before this sidecar may end.
func (c *Core) owes(p *peer) bool {
	switch p.State() {
	case channel.Connecting:
		// A peer that was connected when the job failed is notified by other pods, or has
		// ended because of the failure.
		return !p.Out().Empty() && !(p.Gone() && p.gen >= c.gen) && (c.fail == nil || !p.Known())
	case channel.Greeting, channel.Ready:
		return !p.Out().Empty() || p.Transferring() || p.Owes()
	}
	return false
}
