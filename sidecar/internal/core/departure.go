package core

import (
	"fmt"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A rank that leaves in good order sends nothing any more, and requests of other ranks that wait for
// it must end. Its sidecar sends a frame Left behind all messages of the rank, so that these are
// still received (P§7).

// leaveDelay is how long the frame Left of a rank may wait for the other ranks of its pod. Most jobs
// end on all ranks at once, and then one frame Bye of the sidecar is enough.
const leaveDelay = 100 * time.Millisecond

// parting is the work that follows from ranks that have left.
type parting struct {
	departed []uint32 // ranks of this sidecar, in order
	tellAt   int64    // when the peers are notified of the last ones; 0: they were

	sweeping bool // requests that wait for ranks that have left have to be ended
	again    bool // another rank has left since the sweep began
	table    int  // the table that the sweep is in
	at       uint32
}

// abortsAfter is the time after such a message in which an abort counts as its consequence. An
// MPI aborts at once, but the machine may be busy.
const abortsAfter = 1e9

// Deserted returns why the MPI of a session gives up, if a message of it has just ended because
// another rank had left, or nil.
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

// Aborted ends the job because the MPI of a rank asks for it. If a message of the rank has just ended
// because another rank had left, the failure names that rank: the MPI knows only that the message
// could not be sent or received.
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

// depart notes that a rank of this sidecar has left. The other ranks of this sidecar are
// notified by a frame Left, too, after the messages that the rank has sent to them.
func (c *Core) depart(rank uint32) {
	c.parting.departed = append(c.parting.departed, rank)
	if c.parting.tellAt == 0 {
		c.parting.tellAt = c.now + int64(leaveDelay)
	}
	if self := &c.peers[c.cfg.Self]; self.State() != channel.Idle {
		c.emitLeft(self)
	} else {
		c.markLeft(rank)
	}
}

// emitLeft reports to a peer the ranks that have left since the last report, a frame Left for each,
// and returns their number.
func (c *Core) emitLeft(p *peer) (n int) {
	for ; p.toldLeft < len(c.parting.departed); p.toldLeft++ {
		f, _ := c.channel.Emit(p.Peer, wire.Left)
		f.Head.Src, f.Head.Dst = c.parting.departed[p.toldLeft], p.first
		f.Head.A = p.takenNext()
		p.Pass()
		n++
	}
	return n
}

// tickLeft notifies all peers when leaveDelay is over, unless the sidecar has sent Bye. It
// returns when it has to be called again, or 0.
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
			told += c.emitLeft(p)
		}
	}
	c.parting.tellAt = 0
	return 0
}

// takenNext returns the number of the first frame of p that has not come. Goodbyes carry it: a rank
// that has left has not received that frame, even if it is acknowledged later. 0 means none.
func (p *peer) takenNext() uint64 {
	if p.Self() {
		return 0 // messages and goodbyes within a sidecar are in order
	}
	return p.Arrived() + 1
}

// noteTook records which frames arrived too late for the rank or pod that has sent a goodbye.
// It must be called before the acknowledgement in the same frame is handled, which covers
// these frames.
func (c *Core) noteTook(p *peer, h *wire.Header) {
	switch {
	case h.A == 0 || h.A > p.Out().Last(): // it has received all frames
	case h.Type == wire.Again && h.B > c.gen && p.gen <= c.gen:
		c.p2p.PodTook(p.ID(), h.A)
	case h.Type == wire.Again || p.gen != c.gen: // of another generation
	case h.Type == wire.Bye:
		c.p2p.PodTook(p.ID(), h.A)
	case h.Type == wire.Left && int(h.Src) < len(c.cfg.PodOf) && c.peerOf(h.Src) == p && !c.job.HasLeft(h.Src):
		c.p2p.RankTook(h.Src, h.A)
	}
}

// onLeft handles the news that a rank of p has left.
func (c *Core) onLeft(p *peer, h *wire.Header) error {
	if int(h.Src) >= len(c.cfg.PodOf) || c.peerOf(h.Src) != p {
		return fmt.Errorf("%w: goodbye of rank %d, which is not in its pod", link.ErrProtocol, h.Src)
	}
	if !p.Self() && c.job.HasLeft(h.Src) { // this sidecar notes the departures of its own ranks itself
		return fmt.Errorf("%w: rank %d of pod %d leaves a second time", link.ErrProtocol, h.Src, p.ID())
	}
	c.markLeft(h.Src)
	return nil
}

// silent returns an error if a new message of p is from a rank that has left: Left and Bye follow all
// that a rank has sent (P§7).
func (c *Core) silent(p *peer, h *wire.Header) error {
	if p.Self() || int(h.Src) >= len(c.cfg.PodOf) || c.peerOf(h.Src) != p || !c.job.HasLeft(h.Src) {
		return nil
	}
	return talksOn(p, h)
}

// talksOn returns the error of a message whose sender has left.
func talksOn(p *peer, h *wire.Header) error {
	return fmt.Errorf("%w: %v of rank %d of pod %d, which has left", link.ErrProtocol, h.Type, h.Src, p.ID())
}

// onBye handles the news that all ranks of p have left.
func (c *Core) onBye(p *peer) {
	c.setGone(p, true)
	c.allLeft(p)
}

// setGone sets whether all ranks of p have left. If ranks of this sidecar have not, they can use the
// credit that p does not need any more.
func (c *Core) setGone(p *peer, is bool) {
	p.SetGone(is)
	c.channel.SetDeparted(p.Peer, is && !c.left)
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
		x.again = x.again || x.table > 0 || x.at > 0 // a sweep that has not begun sees this rank, too
		return
	}
	c.parting.sweeping, c.parting.table, c.parting.at = true, 0, 0
}

// sweepsLocks is the last part of a sweep, after the tables.
const sweepsLocks = 5

// sweep ends requests that wait for a rank that has left. It visits up to budget requests, and
// returns the rest of the budget.
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
