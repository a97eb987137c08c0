package channel

import (
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Emit queues a frame to p and returns it, and its release, for the caller to fill. The first
// frame to a peer makes the connection.
func (r *Room) Emit(p *Peer, t wire.Type) (*link.Frame, *Release) {
	if p.unannounced { // never where ranks attach once
		r.user.Announce(p.id)
	}
	f, a := p.out.Push()
	// Zeroed and set, because a literal would be built on the stack and copied.
	f.Head = wire.Header{}
	f.Gather = false
	f.Head.Type, f.Head.Seq = t, p.out.Last()
	r.Touch(p)
	r.Reach(p)
	return f, a
}

// Answer queues a frame to p that p has asked for, by a request or a message. The number of answers
// that p has not acknowledged is checked with its next frame.
func (r *Room) Answer(p *Peer, t wire.Type) *link.Frame {
	f, a := r.Emit(p, t)
	a.Kind = releaseAnswer
	p.account.Answer()
	return f
}

// Touch makes the next Flush visit p.
func (r *Room) Touch(p *Peer) {
	if !p.isDirty {
		p.isDirty = true
		r.dirty = append(r.dirty, p.id)
	}
}

// Messages to a peer are sent in the order in which they were submitted, so that the messages of one
// rank may delay those of its neighbours. Therefore no descriptors are taken from a rank with many
// messages that no link has taken (core.Held): a flood of small messages fills the ring of its own
// rank, and its neighbours wait for a bounded part of it. Large transfers and one-sided operations
// take turns instead (transfers.go).

// Queued counts a message of a rank of this sidecar that was emitted.
func (r *Room) Queued(rank uint32) { r.waiting[rank-r.cfg.First]++ }

// Waiting returns how many messages of a rank of this sidecar no link has taken.
func (r *Room) Waiting(rank uint32) int { return int(r.waiting[rank-r.cfg.First]) }

// count adds by to the waiting messages of the rank of f, if a message begins with f.
func (r *Room) count(f *link.Frame, by int32) {
	if t := f.Head.Type; t == wire.Eager || t == wire.RTS {
		r.waiting[f.Head.Src-r.cfg.First] += by
	}
}

// countAll calls count for the frames from from+1 to to.
func (r *Room) countAll(o *Outbox, from, to uint64, by int32) {
	for s := from + 1; s <= to; s++ {
		r.count(o.At(s), by)
	}
}

// rewind makes Flush post again all frames to p that are not known to have arrived.
func (r *Room) rewind(p *Peer) {
	r.countAll(&p.out, p.out.Kept(), p.out.Next(), 1)
	p.out.Rewind()
}

// skip counts frames as posted that have arrived although they were going to be posted again:
// they arrived on an earlier connection or by its ring. Preconditions: seq > o.Next().
func (r *Room) skip(o *Outbox, seq uint64) {
	r.countAll(o, o.Next(), seq, -1)
	o.Skip(seq)
}

// acknowledge releases every frame up to and including seq.
func (r *Room) acknowledge(p *Peer, seq uint64) error {
	o := &p.out
	if seq <= o.Base() {
		return nil
	}
	if !o.Was(seq) {
		return o.Never(seq)
	}
	if seq > o.Next() {
		r.skip(o, seq)
	}
	for o.Base() < seq {
		switch f, a := o.Acknowledge(); {
		case a.Kind == releaseAnswer:
			p.account.Answered()
		case a.Any():
			r.user.Released(p.id, *a, f)
		}
	}
	return nil
}

// drop releases all frames to a dead peer.
func (r *Room) drop(p *Peer) {
	o := &p.out
	r.countAll(o, o.Next(), o.Last(), -1)
	o.Skip(o.Last())
	for !o.Empty() {
		f, a := o.Acknowledge()
		if a.Kind == releaseAnswer {
			p.account.Answered()
			continue
		}
		r.user.Dropped(p.id, *a, f)
	}
	o.Skip(o.Last()) // the frames that the user has emitted meanwhile
	r.user.Ended(p.id)
}

// Consumed gives the credit of an eager message back to its sender, by the next frame, or by a
// frame of its own once a quarter of the window is free.
func (r *Room) Consumed(p *Peer, bytes uint64) {
	p.credit.Return(r.keep(p, Units(bytes)))
	if p.self {
		p.credit.Own()
		return
	}
	if p.credit.Reports() {
		if p.credit.Lacks(p.credit.width / 4) {
			r.widen(p)
		}
		p.arrivals.Hurry(r.now)
		r.Touch(p)
	}
}

// TakeCredit uses credit of a peer. It reports false if there is not enough.
func (r *Room) TakeCredit(p *Peer, bytes uint64) bool {
	took := p.credit.Take(Units(bytes))
	if !took {
		r.stats.CreditStalls++
	}
	return took
}
