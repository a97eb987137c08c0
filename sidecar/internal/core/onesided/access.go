package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// One-sided operations of one rank at one peer are carried out in the order of
// their submission (P§5.6): a flush means all that came before it. What cannot
// go at once waits in a queue of that rank and peer, and the queues of a peer
// take turns with its other streams.

// accessQueue is what one rank has still to say to one peer about windows.
type accessQueue struct {
	rank uint32
	ids  queue.FIFO[uint64] // of origins; they may have ended meanwhile
}

// access starts a one-sided operation at a peer of that standing, or queues it behind others of
// its rank.
func (r *Room) access(p *peer, o *origin, id uint64, is Standing) {
	q := p.accessesOf(o.rank)
	if q == nil && is&Full == 0 && r.stepAccess(p, o, id, is) {
		return
	}
	if q == nil {
		q = r.newAccesses(p, o.rank)
	}
	q.ids.Push(id)
	r.channel.Wake(p.id)
	r.channel.Reach(p.id)
}

// accessFirst starts an operation before what its rank has queued since.
func (r *Room) accessFirst(p *peer, o *origin, id uint64) {
	q := p.accessesOf(o.rank)
	if q == nil {
		r.access(p, o, id, r.channel.Standing(p.id))
		return
	}
	q.ids.Unshift(id)
	r.channel.Wake(p.id)
}

func (p *peer) accessesOf(rank uint32) *accessQueue {
	for _, q := range p.accesses {
		if q.rank == rank {
			return q
		}
	}
	return nil
}

func (r *Room) newAccesses(p *peer, rank uint32) *accessQueue {
	var q *accessQueue
	if n := len(r.spareAccesses); n > 0 {
		q, r.spareAccesses = r.spareAccesses[n-1], r.spareAccesses[:n-1]
	} else {
		q = new(accessQueue)
	}
	q.rank = rank
	p.accesses = append(p.accesses, q)
	r.channel.Queue(p.id, rank, Turn{ID: uint64(rank)})
	return q
}

// Feed takes the next turn of what was queued at a peer; false: it was the last.
func (r *Room) Feed(id link.Peer, t Turn) bool {
	if t.Get {
		return r.feedGot(r.peer(id), t.ID)
	}
	return r.feedAccess(r.peer(id), uint32(t.ID))
}

// feedAccess emits the next frame of a rank's accesses; false: there are none
// any more.
func (r *Room) feedAccess(p *peer, rank uint32) bool {
	q, is := p.accessesOf(rank), r.channel.Standing(p.id)
	for q.ids.Len() > 0 {
		id := *q.ids.First()
		o := r.origins.Get(id)
		if o != nil && !r.stepAccess(p, o, id, is) {
			return true
		}
		q.ids.Pop()
		if o != nil {
			break
		}
	}
	if q.ids.Len() > 0 {
		return true
	}
	for i := range p.accesses {
		if p.accesses[i] == q {
			last := len(p.accesses) - 1
			p.accesses[i] = p.accesses[last]
			p.accesses = p.accesses[:last]
			break
		}
	}
	if q.ids.Reuse() {
		r.spareAccesses = append(r.spareAccesses, q)
	}
	return false
}

// stepAccess takes the next step of an operation: the link's own write or read
// where the window can be reached so, a frame where not. false: it has more, or
// has to wait.
func (r *Room) stepAccess(p *peer, o *origin, id uint64, is Standing) bool {
	switch o.op {
	case shm.OpPut, shm.OpGet:
		switch r.reachFor(p, o, id, is) {
		case reachStarted:
			return true
		case reachFull:
			return false
		}
	case shm.OpFlush, shm.OpUnlock:
		if use := r.usesOf(p, o.rank); use != nil && use.remote+use.gets > 0 {
			return false // reachEnded and getEnded go on
		}
		fallthrough
	case shm.OpFetch, shm.OpCas:
		if o.target != shm.AnySource && !p.mayAsk(o) {
			return false
		}
	}
	return r.sayAccess(p, o, id)
}

// sayAccess emits the next frame of an operation; false as in stepAccess.
func (r *Room) sayAccess(p *peer, o *origin, id uint64) bool {
	switch o.op {
	case shm.OpPut:
		return r.emitAccess(p, o, id, wire.Put, r.fragment(p))
	case shm.OpAcc:
		return r.emitAccess(p, o, id, wire.Acc, min(AccFragment, r.fragment(p)&^15))
	case shm.OpGet:
		return r.emitGet(p, o, id)
	case shm.OpFetch, shm.OpCas:
		h := r.emitRequest(p, o, id, wire.Fetch)
		h.Tag, h.B = o.offset, o.word
	case shm.OpLock:
		h := r.emitRequest(p, o, id, wire.Lock)
		h.B = o.word
	case shm.OpPost, shm.OpComplete:
		return r.tellEpoch(p, o, id)
	case shm.OpUnlock:
		r.emitRequest(p, o, id, wire.Unlock)
	case shm.OpFlush:
		if o.target != shm.AnySource && r.quiet(p, o) {
			r.End(id, shm.StatusOK)
			return true
		}
		h := r.emitRequest(p, o, id, wire.Flush)
		if o.target == shm.AnySource {
			h.Dst, h.Tag = r.cfg.First[p.id], 1
			return true // counted by flushAll
		}
		o.sent = h.Seq // up to here it is flushed when the answer has come
	}
	o.emitted, o.waits = true, 1
	return true
}

// emitRequest emits a frame with o's operand, if it has one.
func (r *Room) emitRequest(p *peer, o *origin, id uint64, t wire.Type) *wire.Header {
	f := r.channel.Emit(p.id, t)
	h := &f.Head
	if o.op != shm.OpFlush {
		r.spoke(p, o, h.Seq)
	}
	h.Context, h.Src, h.Dst, h.A = o.context, o.rank, o.target, id
	h.Length = uint32(copy(f.Inline[:], o.operand[:o.length]))
	return h
}

// emitGet asks for all that a get wants, if the peer has not too many of them.
func (r *Room) emitGet(p *peer, o *origin, id uint64) bool {
	if o.total == 0 {
		r.End(id, shm.StatusOK)
		return true
	}
	if p.gets >= GetWindow {
		return false
	}
	p.gets++
	r.useOf(p, o.rank).gets++
	h := r.emitRequest(p, o, id, wire.Get)
	h.Tag, h.B = o.offset, o.total
	o.emitted, o.waits = true, 1
	return true
}

// getEnded makes room for another get, and lets a flush go that has waited for this
// one: it would be answered before all is read, and its window could be freed then.
func (r *Room) getEnded(p *peer, rank uint32) {
	p.gets--
	r.useOf(p, rank).gets--
	r.channel.Wake(p.id)
}

// emitAccess sends the next fragment of a Put or Accumulate. Small ones leave
// the application's memory at once; others are done when the last fragment is
// acknowledged.
func (r *Room) emitAccess(p *peer, o *origin, id uint64, t wire.Type, fragment uint64) bool {
	if o.total == 0 {
		r.End(id, shm.StatusOK)
		return true
	}
	n := min(fragment, o.total-o.sent)
	small := o.total <= link.InlineMax
	var f *link.Frame
	if small {
		f = r.channel.Emit(p.id, t)
	} else {
		r.sessions.Hold(o.session)
		f = r.channel.EmitFrom(p.id, t, Payload{Memory: o.buf.Slice(o.sent, n), Session: o.session, Release: ReleaseAccess, ID: id})
	}
	h := &f.Head
	r.spoke(p, o, h.Seq)
	h.Context, h.Src, h.Dst = o.context, o.rank, o.target
	h.Tag, h.A, h.Length = o.offset+o.sent, o.tag, uint32(n)
	if small {
		copy(f.Inline[:], r.ports.Bytes(o.buf))
		r.End(id, shm.StatusOK)
		return true
	}
	o.waits++
	o.sent += n
	if o.sent < o.total {
		return false
	}
	h.Flags |= wire.FlagAckNow
	o.emitted = true
	return true
}

// flushAll asks every sidecar that was ever talked to, behind what its rank has
// still to say there.
func (r *Room) flushAll(o *origin, id uint64) {
	o.emitted = true
	r.effort += ranks.StepEffort * uint64(len(r.peers))
	for i := range r.peers {
		if p := link.Peer(i); r.channel.Standing(p)&(Idle|Over) == 0 {
			o.asked = append(o.asked, p)
		}
	}
	if o.waits = len(o.asked); o.waits == 0 {
		r.End(id, shm.StatusOK)
		return
	}
	for _, peer := range o.asked {
		r.access(r.peer(peer), o, id, r.channel.Standing(peer))
	}
}

// dropAccesses ends what was still to be said to a dead peer.
func (r *Room) dropAccesses(p *peer, status shm.Status) {
	queues := p.accesses
	p.accesses = nil
	for _, q := range queues {
		for _, id := range q.ids.Rest() {
			o := r.origins.Get(id)
			switch {
			case o == nil:
			case o.target == shm.AnySource:
				r.flushAnswered(id, o, p.id, status)
			default:
				r.End(id, status)
			}
		}
	}
}
