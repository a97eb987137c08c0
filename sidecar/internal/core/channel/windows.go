package channel

import (
	"fmt"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The window of a peer begins small, so that a large job needs little memory for peers that send
// little. It is widened in steps, out of one budget for all peers, when the peer uses it up: by a
// grant of more than was returned. If the budget is used up, peers that have sent nothing for a
// while are asked to give unused credit back, and after them those that have more than their share:
//
//	peer                                   this sidecar
//	Eager …                                charged until its window is used up
//	                                       its window is widened: a frame grants more
//	                                       another peer uses its window up, and the budget is used up
//	            ◄──────────────────────── Yield: bytes
//	counts them as used
//	Yielded: bytes ──────────────────────► counts them as used, and the budget has them
//
// Both frames are numbered, so that they are carried out once, in the order of the messages that
// use the same credit. No window becomes smaller than it was at first. A peer of an earlier release
// has the widest window from the start and for good. If the budget was used by then, peers are
// asked to give back what is missing.
//
// A peer whose ranks have all left is asked at once, while its sidecar still answers: the Yield goes
// out with the acknowledgement of its Bye, for which it waits. What its messages use is not granted
// again. Without an answer it keeps its window, since it may come back in a later generation.

// windows are the windows of credit of all peers, in units of wire.CreditUnit.
type windows struct {
	widens bool
	first  uint32
	widest uint32
	budget uint64      // units by which all windows together may be wider than first
	left   int64       // the part of the budget that no window has; negative: peers of an earlier release had to get more
	fixed  uint64      // the part of the budget that peers of earlier releases have
	wide   []link.Peer // peers with a wider window that may give it back
	hand   int         // index in wide of the peer that was looked at last
}

// silentAfter is the time without messages after which a peer counts as silent. windowVisits is how
// many peers are looked at when a window cannot be widened.
const (
	silentAfter  = int64(time.Millisecond)
	windowVisits = 8
)

func (w *windows) init(cfg *Config) {
	w.widens, w.first, w.widest = cfg.Widens, Units(cfg.CreditFirst), Units(cfg.CreditBytes)
	w.budget = min(cfg.CreditBudget/wire.CreditUnit, uint64(cfg.Peers)*uint64(w.widest-w.first))
	w.left = int64(w.budget) // at most 2^14 peers with 2^24 units each
}

// features returns what this sidecar supports, for its greeting.
func (r *Room) features() uint64 {
	f := wire.FeatureAgain | wire.FeatureElem
	if r.windows.widens {
		f |= wire.FeatureYield
	}
	return f
}

// meet notes at the first greeting of a peer whether its window can be widened and narrowed. A peer
// of an earlier release uses the widest window from the start.
func (r *Room) meet(p *Peer, yields bool) error {
	c, w := &p.credit, &r.windows
	if c.met {
		return nil
	}
	c.met, c.yields = true, yields
	if yields || !w.widens {
		return nil
	}
	add := w.widest - c.width
	if w.fixed+uint64(add) > w.budget {
		return fmt.Errorf("%w: pod %d has protocol %d without Yield, this one %d with it; the first may send %s at once, for which this one has no memory: use images of one release", link.ErrProtocol,
			p.id, wire.Version, wire.Version, memory.Text(uint64(w.widest)*wire.CreditUnit))
	}
	w.fixed += uint64(add)
	w.left -= int64(add)
	c.Widen(add)
	c.Said() // the peer has counted it from the start
	missing := -w.left
	for i := len(w.wide) - 1; i >= 0 && missing > 0; i-- {
		q := &r.peers[w.wide[i]]
		if q.answersSoon() {
			units := min(int64(q.credit.width-w.first), missing)
			missing -= units
			r.ask(q, uint32(units))
		}
	}
	return nil
}

// Announced notes that a peer has announced a message that costs that much credit instead of
// sending it. If the peer had no credit for it, its window is widened.
func (r *Room) Announced(p *Peer, bytes uint64) {
	if !p.credit.Lacks(Units(bytes)) || !r.widen(p) {
		return
	}
	if p.self {
		p.credit.Own()
		return
	}
	p.arrivals.Hurry(r.now)
	r.Touch(p)
}

// widen doubles the window of a peer, or widens it by what the budget has left. It reports whether
// the window is wider. A peer that has not been told of the last time, or is not connected, cannot
// have used up more.
func (r *Room) widen(p *Peer) bool {
	c, w := &p.credit, &r.windows
	if c.width >= w.widest || c.wider || c.departed || c.asked != 0 || !p.self && (!c.yields || p.state != Ready) {
		return false
	}
	add := min(c.width, w.widest-c.width)
	if int64(add) > w.left {
		r.reclaim(p, add)
		if add = uint32(min(int64(add), max(w.left, 0))); add < w.first/4 {
			return false
		}
	}
	if c.width == w.first {
		w.wide = append(w.wide, p.id)
	}
	w.left -= int64(add)
	c.Widen(add)
	c.seen, c.seenAt = c.taken, r.now
	r.stats.Widened++
	return true
}

// reclaim asks one peer for credit, so that the window of p can be widened by add units later.
func (r *Room) reclaim(p *Peer, add uint32) {
	w := &r.windows
	if r.failed {
		return
	}
	others := len(w.wide)
	if p.credit.width > w.first {
		others--
	}
	share := w.budget / uint64(others+1)
	poor := uint64(p.credit.width-w.first+add) <= share
	var rich *Peer
	var excess uint32
	for range min(len(w.wide), windowVisits) {
		w.hand++
		if w.hand >= len(w.wide) {
			w.hand = 0
		}
		q := &r.peers[w.wide[w.hand]]
		if q == p || !q.answersSoon() {
			continue
		}
		// A peer whose messages wait for their receives has nothing to give.
		beyond := q.credit.width - w.first
		unused := w.unused(&q.credit)
		silent := q.credit.silent(r.now)
		if unused < w.first/4 {
			continue
		}
		if silent {
			r.ask(q, unused)
			return
		}
		if poor && rich == nil && uint64(beyond) > share {
			rich, excess = q, min(unused, beyond-uint32(share))
		}
	}
	if rich != nil {
		r.ask(rich, excess)
	}
}

// unused returns what a peer could give back.
func (w *windows) unused(c *Credit) uint32 { return min(c.width-w.first, c.grant-c.taken) }

// SetDeparted sets whether all ranks of a peer have left. Its window then becomes the first one again.
func (r *Room) SetDeparted(p *Peer, is bool) {
	p.credit.departed = is
	r.recover(p)
}

// recover asks a departed peer for all that it could give back, if it can be asked now.
func (r *Room) recover(p *Peer) {
	if !p.credit.departed || !p.credit.yields || r.failed || !p.answersSoon() {
		return
	}
	if units := r.windows.unused(&p.credit); units > 0 {
		r.ask(p, units)
	}
}

// keep takes units that a message of a departed peer has used out of its window, as far as it is wider
// than the first one and the peer was not asked for it. It returns the units to grant again.
func (r *Room) keep(p *Peer, units uint32) uint32 {
	c := &p.credit
	if !c.departed || !c.yields {
		return units
	}
	kept := min(units, c.width-r.windows.first-c.asked)
	if kept > 0 {
		c.width -= kept
		r.stats.Narrowed++
		r.giveBack(p, kept)
	}
	return units - kept
}

// Settled reports whether no frame to p waits for an acknowledgement that is needed. That of a Yield to a
// departed peer is not: its sidecar may have ended first, and then no other connection is made for it.
func (p *Peer) Settled() bool {
	return p.out.Empty() || p.YieldFirst() && p.out.Base()+1 == p.out.Last()
}

// YieldFirst reports whether the first frame that p has not acknowledged is the Yield to a departed peer.
// Nothing is lost with it.
func (p *Peer) YieldFirst() bool {
	return p.credit.departed && !p.out.Empty() && p.out.At(p.out.Base()+1).Head.Type == wire.Yield
}

// answersSoon reports whether a Yield to the peer can go out now. It would wait for a walled peer to
// come to this generation.
func (p *Peer) answersSoon() bool {
	return p.credit.asked == 0 && p.state == Ready && !p.walled
}

// silent reports whether the peer has used no credit since a visit silentAfter ago.
func (x *Credit) silent(now int64) bool {
	if x.seen != x.taken {
		x.seen, x.seenAt = x.taken, now
		return false
	}
	return now-x.seenAt >= silentAfter
}

// ask asks a peer to give back unused credit.
func (r *Room) ask(p *Peer, units uint32) {
	r.stats.Asked++
	if p.self {
		if units = p.credit.Yield(units); units > 0 {
			p.credit.Narrow(units)
			r.stats.Narrowed++
			r.giveBack(p, units)
		}
		return
	}
	p.credit.asked = units
	f, _ := r.Emit(p, wire.Yield)
	f.Head.A = uint64(units) * wire.CreditUnit
}

// onYield gives credit back that the peer asks for.
func (r *Room) onYield(p *Peer, h *wire.Header) {
	units := p.credit.Yield(uint32(min(h.A/wire.CreditUnit, uint64(r.windows.widest))))
	r.Answer(p, wire.Yielded).Head.A = uint64(units) * wire.CreditUnit
	p.Pass()
}

// onYielded counts the credit that a peer has given back.
func (r *Room) onYielded(p *Peer, h *wire.Header) error {
	c := &p.credit
	if c.asked == 0 || h.A%wire.CreditUnit != 0 || h.A/wire.CreditUnit > uint64(c.asked) {
		return fmt.Errorf("%w: gives %d bytes of credit back, and was asked for %d", link.ErrProtocol, h.A, uint64(c.asked)*wire.CreditUnit)
	}
	units, all := uint32(h.A/wire.CreditUnit), h.A/wire.CreditUnit == uint64(c.asked)
	c.asked = 0
	if !c.Narrow(units) {
		return fmt.Errorf("%w: gives %d bytes of credit back that it has used", link.ErrProtocol, h.A)
	}
	c.seen += units // what it sent meanwhile stays unseen
	if units > 0 {
		r.stats.Narrowed++
		r.giveBack(p, units)
	}
	if all { // it may have left since it was asked
		r.recover(p)
	}
	return nil
}

// giveBack adds what a window has lost to the budget.
func (r *Room) giveBack(p *Peer, units uint32) {
	w := &r.windows
	w.left += int64(units)
	if i := slices.Index(w.wide, p.id); p.credit.width == w.first && i >= 0 {
		w.wide = slices.Delete(w.wide, i, i+1)
	}
}

// closeWindow takes back the credit that a peer had not used when it died. What its messages in the
// pool use stays counted: a peer that dies before it has left fails the job, and one that has left
// has sent what its ranks had to send.
func (r *Room) closeWindow(p *Peer) {
	c := &p.credit
	if p.state == Dead || p.state == Rejected || c.width == r.windows.first {
		return
	}
	c.asked = 0 // it will not answer: what its messages use is all that is left (keep)
	units := min(c.width-r.windows.first, uint32(max(int32(c.grant-c.taken), 0)))
	c.Narrow(units)
	r.giveBack(p, units)
}
