package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A rank may attach again after it has left in good order: a script runs one program after
// the other. The attachments of a pod's ranks have one generation, which begins when the
// generation before it is over here (mayRenew). Generations of different pods never exchange
// a message (P§9):
//
//	behind     the peer's ranks are in an earlier generation. Frames for them wait in the
//	           outbox, as before a connection is made; frames of them are dropped.
//	the same   messages go.
//	ahead      the peer's ranks have left this generation, all of them: here that is the end
//	           of a peer that has said goodbye, except that its connection goes on.

// newsMax is how many frames may wait for a peer's acknowledgement when a generation begins.
// Each generation adds two or more for a peer that is away or stopped, however many programs a
// rank runs meanwhile.
const newsMax = 64

// generationMax is more generations than a job can have, so that no number overflows.
const generationMax = 1 << 48

// over reports that p answers nothing of this generation any more.
func (c *Core) over(p *peer) bool { return p.State() == channel.Dead || p.Ahead() }

// holds reports that frames wait in the outbox until p's ranks have come to this generation.
// In a failed job nothing waits: the peer drops the frames, and hears why.
func (c *Core) holds(p *peer) bool { return p.gen < c.gen && c.fail == nil }

// Renew begins the next generation, for ranks that attach again, if the one that there is
// is over here; false: not yet.
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

// Renews reports that Renew would begin the next generation.
func (c *Core) Renews() bool { return !c.leaving && c.fail == nil && c.mayRenew() }

// HasLeft reports that a rank of here has left this generation.
func (c *Core) HasLeft(rank uint32) bool { return c.hasGone(rank) }

// Leaving reports that no rank may attach any more.
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

// follow begins the generation that a peer has begun, where no rank attaches any more: the
// peer learns that it waits for none.
func (c *Core) follow() {
	if c.follows() {
		c.renew(c.wanted)
	}
}

// follows reports that follow would begin that generation.
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

// mayRenew reports that nothing of this generation is open here: all ranks have left it, or
// never attach; and what they have sent has been received, or refused.
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

// compare notes whether p's ranks are in another generation.
func (c *Core) compare(p *peer) {
	p.SetAhead(p.gen > c.gen)
	p.SetWalled(p.gen < c.gen && !p.Self())
}

// placing reports that a payload of p is being placed.
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

// renewPeer forgets what was between the last generation and a peer, and takes up what it has
// said of this one.
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
		c.tellAgain(p)
	}
}

// tellAgain says which generation has begun here, before every other frame of it. It is
// never said in a job whose ranks attach once.
func (c *Core) tellAgain(p *peer) {
	p.genTold = c.gen
	p.SetUnannounced(false)
	f, _ := c.channel.Emit(p.Peer, wire.Again)
	h := &f.Head
	h.Flags, h.Src, h.Dst, h.A, h.B = wire.FlagAckNow, c.hosted[0].rank, p.first, p.takenNext(), c.gen
	p.Wall()
	c.checkAgain(p)
}

// checkAgain fails the job for a peer that knows no further generation, when there is one.
func (c *Core) checkAgain(p *peer) {
	if p.genTold > 1 && p.State() == channel.Ready && !p.renews {
		c.failJob(&Failure{Rank: c.hosted[0].rank, Code: 1, Reason: fmt.Sprintf(
			"attached again: pod %d has protocol %d without Again, this one %d with it; use images of one release", p.ID(), wire.Version, wire.Version)})
	}
}

// onAgain takes the news that a peer's ranks have left a generation, all of them, and come to
// a later one. Nothing that this side has asked for before is answered.
func (c *Core) onAgain(p *peer, h *wire.Header) error {
	if p.Self() || h.B <= p.gen || h.B > generationMax {
		return fmt.Errorf("%w: generation %d after %d", link.ErrProtocol, h.B, p.gen)
	}
	was := p.gen
	p.gen, p.early = h.B, nil
	p.SetGone(false)
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
		c.tellAgain(p)
	}
	c.channel.Touch(p.Peer) // what waited for it
	return nil
}

// foreign takes a frame of a peer whose ranks are in another generation, if it is one that
// concerns messages; false: it is to be taken as ever. Credit goes back: the peer has used it.
func (c *Core) foreign(p *peer, h *wire.Header) (bool, error) {
	switch h.Type {
	case wire.Again, wire.Abort, wire.Place:
		return false, nil
	case wire.Bye:
		p.SetGone(true)
	case wire.Left:
		if int(h.Src) >= len(c.cfg.PodOf) || c.peerOf(h.Src) != p || len(p.early) >= p.ranks {
			return true, errLeft
		}
		if p.gen > c.gen {
			p.early = append(p.early, h.Src)
		}
	case wire.Eager:
		return true, c.p2p.Refuse(p.ID(), h)
	}
	return true, nil
}

var errLeft = fmt.Errorf("%w: goodbye in the name of a rank that is not there, or more than one of each", link.ErrProtocol)
