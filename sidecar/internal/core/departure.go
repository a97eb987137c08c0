package core

import (
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A rank that leaves in good order sends nothing any more, and whoever waits
// for it must learn that. Its sidecar says so behind all that the rank has sent
// (Left), so that what it had sent is received all the same (P§7).

// leaveDelay is how long the news that a rank has left may wait for the others
// of its pod: most jobs end on all ranks at once, and the goodbye of the sidecar
// then says it for all of them.
const leaveDelay = 100 * time.Millisecond

// parting is which ranks have left, and what is still to be done about it.
type parting struct {
	departed []uint32 // ranks of this sidecar, in order
	tellAt   int64    // when the peers are told of the last ones; 0: they were

	sweeping bool // receives from who has left are to be ended
	again    bool // somebody has left since the sweep began
	table    int  // where the sweep is
	at       uint32
}

// abortsAfter is how long after such a message an abort is taken for its consequence: an MPI
// aborts at once, and a machine may be busy.
const abortsAfter = 1e9

// Deserted is why the MPI of a session gives up, if a message of it has just ended because another
// rank had left; nil: none has.
func (c *Core) Deserted(now int64, id SessionID) *AbsentError {
	s := c.sessions[id]
	if s == nil {
		return nil
	}
	by, at := c.p2p.Departed(id)
	if at == 0 || now-at >= abortsAfter {
		return nil
	}
	return &AbsentError{Rank: by, Text: fmt.Sprintf("%s%d%s%s", podlife.TextAbsent, s.endpoint.rank, podlife.TextAbsentFrom, "a message of MPI")}
}

// Aborted ends the job for a rank whose MPI asks for that. If a message of it has just ended
// because another rank had left, that one is to blame: the MPI knows no more than that the message
// could not be carried.
func (c *Core) Aborted(now int64, rank, code uint32) {
	c.at(now)
	f := &Failure{Rank: rank, Code: code, Reason: podlife.TextAborted}
	if int(rank) < len(c.endpoints) && c.endpoints[rank] != nil && c.endpoints[rank].session != nil {
		if a := c.Deserted(now, c.endpoints[rank].session.ID()); a != nil {
			f.Rank, f.Reason = a.Rank, a.Text
		}
	}
	c.failJob(f)
}

// depart notes that a rank of this sidecar has left. Its neighbours learn it by
// the same frame as others: behind what it has sent to them.
func (c *Core) depart(rank uint32) {
	c.parting.departed = append(c.parting.departed, rank)
	if c.parting.tellAt == 0 {
		c.parting.tellAt = c.now + int64(leaveDelay)
	}
	if self := &c.peers[c.cfg.Self]; self.State() != channel.Idle {
		c.tellLeft(self)
	} else {
		c.markLeft(rank)
	}
}

// tellLeft tells a peer of the ranks that it has not heard about, and returns how
// many those were.
func (c *Core) tellLeft(p *peer) (n int) {
	for ; p.toldLeft < len(c.parting.departed); p.toldLeft++ {
		f, _ := c.channel.Emit(p.Peer, wire.Left)
		f.Head.Src, f.Head.Dst = c.parting.departed[p.toldLeft], p.first
		f.Head.A = p.takenNext()
		p.Pass()
		n++
	}
	return n
}

// tickLeft tells all peers in time, unless the sidecar has said goodbye. It returns when it is
// to be called again; 0: never.
func (c *Core) tickLeft() int64 {
	if c.parting.tellAt == 0 {
		return 0
	}
	if c.now < c.parting.tellAt && !c.left {
		return c.parting.tellAt
	}
	for i, told := 0, 0; i < len(c.peers) && !c.left; i++ {
		if told >= advanceItems { // the rest at the next tick
			return c.now
		}
		if p := &c.peers[i]; !p.Self() && p.State() != channel.Idle && p.State() != channel.Dead && p.State() != channel.Rejected {
			told += c.tellLeft(p)
		}
	}
	c.parting.tellAt = 0
	return 0
}

// takenNext is the first frame of p's that has not come, which goodbyes say: who has
// left never had it, although it is acknowledged. 0: they do not say it.
func (p *peer) takenNext() uint64 {
	if p.Self() {
		return 0 // what one rank has sent to another came in that order
	}
	return p.Arrived() + 1
}

// noteTook notes what a goodbye says of frames from here that came too late for it. It
// precedes what that frame acknowledges: they are among that.
func (c *Core) noteTook(p *peer, h *wire.Header) {
	switch {
	case h.A == 0 || h.A > p.Out().Last(): // it had all
	case h.Type == wire.Again && h.B > c.gen && p.gen <= c.gen:
		c.p2p.PodTook(p.ID(), h.A)
	case h.Type == wire.Again || p.gen != c.gen: // of another generation
	case h.Type == wire.Bye:
		c.p2p.PodTook(p.ID(), h.A)
	case h.Type == wire.Left && int(h.Src) < len(c.cfg.PodOf) && c.peerOf(h.Src) == p && !c.job.HasLeft(h.Src):
		c.p2p.RankTook(h.Src, h.A)
	}
}

// onLeft takes the news that a rank of p has left.
func (c *Core) onLeft(p *peer, h *wire.Header) error {
	if int(h.Src) >= len(c.cfg.PodOf) || c.peerOf(h.Src) != p {
		return fmt.Errorf("%w: goodbye in the name of rank %d, which is not there", link.ErrProtocol, h.Src)
	}
	c.markLeft(h.Src)
	return nil
}

// onBye takes the news that all ranks of p have left.
func (c *Core) onBye(p *peer) {
	p.SetGone(true)
	c.allLeft(p)
}

// allLeft notes that nothing will come from p any more.
func (c *Core) allLeft(p *peer) {
	for r := p.first; r <= p.last; r++ {
		if c.peerOf(r) == p {
			c.markLeft(r)
		}
	}
	c.startSweep()
}

func (c *Core) markLeft(rank uint32) {
	if c.job.Leave(rank) {
		c.onesided.RankLeft(rank)
	}
	c.p2p.RankLeft(rank)
	c.startSweep()
}

func (c *Core) startSweep() {
	if x := &c.parting; x.sweeping {
		x.again = x.again || x.table > 0 || x.at > 0 // one that has not begun sees this, too
		return
	}
	c.parting.sweeping, c.parting.table, c.parting.at = true, 0, 0
}

// sweepsLocks is the last part of a sweep; those before it are tables.
const sweepsLocks = 5

// sweep ends what waits for somebody who has left: up to budget requests are
// looked at. It returns what is left of the budget.
func (c *Core) sweep(budget int) int {
	x := &c.parting
	for x.sweeping && budget > 0 {
		n := uint32(budget)
		more := false
		switch x.table {
		case 0:
			more = c.p2p.SweepReceives(x.at, n)
		case 1:
			more = c.p2p.SweepSends(x.at, n)
		case 2:
			more = c.onesided.SweepAccesses(x.at, n)
		case 3:
			more = c.p2p.SweepProbes(x.at, n)
		case 4:
			var cost int
			n, cost, more = c.onesided.SweepExposures(x.at, n)
			budget -= cost
		case sweepsLocks:
			if budget, more = c.onesided.SweepLocks(budget); more {
				return 0
			}
			x.table, x.at, x.sweeping, x.again = 0, 0, x.again, false
			continue
		}
		x.at += n
		budget -= int(n)
		if more {
			continue
		}
		x.table, x.at = x.table+1, 0
	}
	return max(budget, 0)
}
