package core

import (
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A rank may attach again after it has left in good order: a script runs one program after the other.
// The attachments of a pod's ranks have one generation. It begins when the previous one has ended in
// this pod (mayRenew). Ranks of different generations never exchange a message (P§9):
//
//	behind     the peer's ranks are in an earlier generation. Frames for them wait in the
//	           outbox, as before a connection is made; frames of them are dropped.
//	the same   messages are exchanged.
//	ahead      all ranks of the peer have left this generation: it is handled like a peer that
//	           has sent Bye, except that its connection stays.

// newsMax bounds the frames that a peer has not acknowledged when a generation begins. Without it, a
// peer that is stopped would have two or more frames of each generation, and a script may run many
// programs meanwhile.
const newsMax = 64

// generationMax is more generations than a job can have. It keeps numbers from overflowing.
const generationMax = 1 << 48

// over reports whether p answers no frame of this generation any more.
func (c *Core) over(p *peer) bool { return p.State() == channel.Dead || p.Ahead() }

// holds reports whether frames wait in the outbox until p's ranks have begun this generation.
// In a failed job no frame waits: the peer drops them, and is notified of the failure.
func (c *Core) holds(p *peer) bool { return p.gen < c.gen && c.fail == nil }

// Renew begins the next generation, for ranks that attach again. It reports false if the current one
// has not ended in this pod.
func (c *Core) Renew(now int64) bool {
	c.at(now)
	if c.leaving || c.fail != nil {
		return false
	}
	for _, e := range c.hosted {
		if e.absent && e.session == nil && !e.gone { // it never attached, and messages may wait for it
			c.leftOut(e)
		}
	}
	if !c.mayRenew() {
		return false
	}
	c.renew(c.gen + 1)
	return true
}

// Renews reports whether Renew would begin the next generation.
func (c *Core) Renews() bool { return !c.leaving && c.fail == nil && c.mayRenew() }

// HasLeft reports whether a rank of this sidecar has left this generation.
func (c *Core) HasLeft(rank uint32) bool { return c.hasGone(rank) }

// Leaving reports whether no rank may attach any more.
func (c *Core) Leaving() bool { return c.leaving }

// Absent notes that the process of a rank has ended: the rank takes part in no later
// generation.
func (c *Core) Absent(now int64, rank uint32) {
	c.at(now)
	if int(rank) >= len(c.endpoints) || c.endpoints[rank] == nil {
		return
	}
	e := c.endpoints[rank]
	e.absent = true
	if c.gen > 1 && e.session == nil && !e.gone {
		c.leftOut(e)
	}
}

// leftOut ends a rank that does not attach in this generation any more.
func (c *Core) leftOut(e *endpoint) {
	e.gone = true
	c.p2p.Detach(e.rank, true)
	c.depart(e.rank)
	c.begin(ending{endpoint: e, leaves: true})
}

// follow begins the generation that a peer has begun if no rank of this pod attaches any more, so that
// the peer does not wait for them.
func (c *Core) follow() {
	if c.follows() {
		c.renew(c.wanted)
	}
}

// follows reports whether follow would begin that generation.
func (c *Core) follows() bool {
	if c.wanted <= c.gen || c.fail != nil {
		return false
	}
	for _, e := range c.hosted {
		if !e.absent && !c.leaving {
			return false
		}
	}
	return c.mayRenew()
}

// mayRenew reports whether this generation has ended in this pod: all ranks have left it or never
// attach, and their messages were received or refused.
func (c *Core) mayRenew() bool {
	for _, e := range c.hosted {
		if !e.ended && (e.gone || !e.absent || e.session != nil) {
			return false
		}
	}
	busy := c.p2p.Busy() + c.collectives.Stats().Open + len(c.endings)
	if busy > 0 || c.onesided.Busy() || c.parting.sweeping || c.collectives.Pending() {
		return false
	}
	for _, s := range c.sessions {
		if s != nil {
			return false
		}
	}
	for i := range c.peers {
		switch p := &c.peers[i]; {
		case p.State() == channel.Dead || p.State() == channel.Rejected:
		case c.placing(p) || p.Transferring():
			return false
		case p.Self() && !p.Out().Empty():
			return false
		case c.holds(p) && p.Behind(): // for ranks that have not come to this one yet
			return false
		case p.Out().Last()-p.Out().Base() > newsMax:
			return false
		}
	}
	return true
}

// compare records whether p's ranks are in another generation.
func (c *Core) compare(p *peer) {
	p.SetAhead(p.gen > c.gen)
	p.SetWalled(p.gen < c.gen && !p.Self())
}

// placing reports whether a payload of p is being placed.
func (c *Core) placing(p *peer) bool {
	_, _, is := p.Placing()
	return is
}

// renew begins generation g. Preconditions: mayRenew, and g is higher than the last one.
func (c *Core) renew(g uint64) {
	c.gen, c.left, c.parting = g, false, parting{}
	c.job.Renew()
	for i := range c.peers {
		c.compare(&c.peers[i])
	}
	for _, e := range c.hosted {
		e.session, e.gone, e.ended = nil, false, false
	}
	c.p2p.Renew()
	c.collectives.Renew()
	c.onesided.Renew()
	for i := range c.peers {
		c.renewPeer(&c.peers[i])
	}
	for _, e := range c.hosted {
		if e.absent || c.leaving {
			c.leftOut(e)
		}
	}
}

// renewPeer drops the state of a peer that belongs to the last generation, and handles the
// frames about this one that the peer has already sent.
func (c *Core) renewPeer(p *peer) {
	p.toldLeft, p.byeSeq = 0, 0
	p.SetUnannounced(!p.Self())
	if p.Self() {
		p.gen, p.genTold = c.gen, c.gen
		return
	}
	switch {
	case p.Ahead(), p.gen == c.gen && p.Gone():
		c.allLeft(p)
	case p.gen == c.gen:
		for _, rank := range p.early {
			c.markLeft(rank)
		}
	}
	if p.State() != channel.Dead && p.State() != channel.Rejected && (p.State() != channel.Idle || p.Known()) {
		c.emitAgain(p)
	}
}

// emitAgain reports to p which generation has begun here, before all other frames of it. It is never
// called in a job whose ranks attach once.
func (c *Core) emitAgain(p *peer) {
	p.genTold = c.gen
	p.SetUnannounced(false)
	f, _ := c.channel.Emit(p.Peer, wire.Again)
	h := &f.Head
	h.Flags, h.Src, h.Dst, h.A, h.B = wire.FlagAckNow, c.hosted[0].rank, p.first, p.takenNext(), c.gen
	p.Wall()
	c.checkAgain(p)
}

// checkAgain fails the job if there is a second generation and p does not support it.
func (c *Core) checkAgain(p *peer) {
	if p.genTold > 1 && p.State() == channel.Ready && !p.renews {
		c.failJob(&Failure{Rank: c.hosted[0].rank, Code: 1, Reason: fmt.Sprintf(
			"attached again: pod %d has protocol %d without Again, this one %d with it; use images of one release", p.ID(), wire.Version, wire.Version)})
	}
}

// onAgain handles the news that all ranks of a peer have left a generation and come to a later one.
// The peer answers no request of the earlier one.
func (c *Core) onAgain(p *peer, h *wire.Header) error {
	if p.Self() || h.B <= p.gen || h.B > generationMax {
		return fmt.Errorf("%w: generation %d after %d", link.ErrProtocol, h.B, p.gen)
	}
	was := p.gen
	p.gen, p.early = h.B, nil
	c.setGone(p, false)
	c.compare(p)
	if p.gen > c.gen {
		c.wanted = max(c.wanted, p.gen)
		if was <= c.gen {
			c.dropStreams(p)
			c.onesided.PeerLost(p.ID(), c.job.Lost(p.ID()))
			c.allLeft(p)
		}
	}
	if c.gen > p.genTold && p.gen >= c.gen {
		c.emitAgain(p)
	}
	c.channel.Touch(p.Peer) // frames that have waited for it
	return nil
}

// foreign handles a frame of a peer whose ranks are in another generation. It reports false if the
// frame has to be handled like others. The credit of a message goes back, because the peer has used
// it.
func (c *Core) foreign(p *peer, h *wire.Header) (bool, error) {
	switch h.Type {
	case wire.Again, wire.Abort, wire.Place:
		return false, nil
	case wire.Bye:
		c.setGone(p, true)
	case wire.Left:
		if int(h.Src) >= len(c.cfg.PodOf) || c.peerOf(h.Src) != p {
			return true, errLeft
		}
		if slices.Contains(p.early, h.Src) {
			return true, fmt.Errorf("%w: rank %d of pod %d leaves a second time", link.ErrProtocol, h.Src, p.ID())
		}
		if p.gen > c.gen {
			p.early = append(p.early, h.Src)
		}
	case wire.Eager:
		if slices.Contains(p.early, h.Src) {
			return true, talksOn(p, h)
		}
		return true, c.p2p.Refuse(p.ID(), h)
	}
	return true, nil
}

var errLeft = fmt.Errorf("%w: goodbye of a rank that is not in its pod", link.ErrProtocol)
