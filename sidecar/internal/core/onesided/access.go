package onesided

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/queue"
)

// One-sided operations of one rank at one peer are emitted in the order of their submission
// (PROTOCOL.md §5.6), because a flush covers all operations before it. Operations that
// cannot be emitted at once wait in a queue of that rank and peer, and the queues take turns
// with the peer's other transfers.

// accessQueue has the operations of one rank that wait for one peer.
type accessQueue struct {
	rank uint32
	ids  queue.FIFO[uint64] // IDs of origins, some of which may have ended
}

// access emits a one-sided operation, or queues it if the peer's link is full or other
// operations of its rank wait.
func (r *Room) access(p *peer, o *origin, id uint64, is PeerState) {
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

// accessFirst puts an operation before all that its rank has queued.
func (r *Room) accessFirst(p *peer, o *origin, id uint64) {
	q := p.accessesOf(o.rank)
	if q == nil {
		r.access(p, o, id, r.channel.PeerState(p.id))
		return
	}
	q.ids.Unshift(id)
	r.channel.Wake(p.id)
}

// accessesOf returns the queue of a rank; nil: it has none.
func (p *peer) accessesOf(rank uint32) *accessQueue {
	for _, q := range p.accesses {
		if q.rank == rank {
			return q
		}
	}
	return nil
}

// newAccesses returns a new queue of a rank, which gets turns of the peer.
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

// Feed runs one turn of a queue or of the answer to a get; false: it is finished.
func (r *Room) Feed(id link.Peer, t Turn) bool {
	if t.Get {
		return r.feedGet(r.peer(id), t.ID)
	}
	return r.feedAccess(r.peer(id), uint32(t.ID))
}

// feedAccess emits the next frame of a rank's queue; false: the queue is empty and freed.
func (r *Room) feedAccess(p *peer, rank uint32) bool {
	q, is := p.accessesOf(rank), r.channel.PeerState(p.id)
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
	if q.ids.Reset() {
		r.spareAccesses = append(r.spareAccesses, q)
	}
	return false
}

// stepAccess runs the next step of an operation: a remote write or read of the link if the
// window allows it, otherwise a frame; false: the operation has more frames or has to wait.
func (r *Room) stepAccess(p *peer, o *origin, id uint64, is PeerState) bool {
	switch o.op {
	case shm.OpPut, shm.OpGet:
		switch r.tryRemote(p, o, id, is) {
		case remoteStarted:
			return true
		case remoteWaits:
			return false
		}
	case shm.OpFlush, shm.OpUnlock:
		if use := r.useOf(p, o.rank); use != nil && use.remote+use.gets > 0 {
			return false // Accessed and getEnded wake the queue
		}
		fallthrough
	case shm.OpFetch, shm.OpCas:
		if o.target != shm.AnySource && !p.claimRequest(o) {
			return false
		}
	}
	return r.emitStep(p, o, id)
}

// emitStep emits the next frame of an operation; false as in stepAccess.
func (r *Room) emitStep(p *peer, o *origin, id uint64) bool {
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
		return r.emitEpoch(p, o, id)
	case shm.OpUnlock:
		r.emitRequest(p, o, id, wire.Unlock)
	case shm.OpFlush:
		if o.target != shm.AnySource && r.flushedAlready(p, o) {
			r.End(id, shm.StatusOK)
			return true
		}
		h := r.emitRequest(p, o, id, wire.Flush)
		if o.target == shm.AnySource {
			h.Dst, h.Tag = r.cfg.First[p.id], 1
			return true // flushAll counts its answers
		}
		o.sent = h.Seq // the answer covers frames up to this one
	}
	o.emitted, o.waits = true, 1
	return true
}

// emitRequest emits a request frame with the operand of o, if there is one.
func (r *Room) emitRequest(p *peer, o *origin, id uint64, t wire.Type) *wire.Header {
	f := r.channel.Emit(p.id, t)
	h := &f.Head
	if o.op != shm.OpFlush {
		r.recordFrame(p, o, h.Seq)
	}
	h.Context, h.Src, h.Dst, h.A = o.context, o.rank, o.target, id
	h.Length = uint32(copy(f.Inline[:], o.operand[:o.length]))
	return h
}

// emitGet emits the request of a get, unless the peer has GetWindow of them.
func (r *Room) emitGet(p *peer, o *origin, id uint64) bool {
	if o.total == 0 {
		r.End(id, shm.StatusOK)
		return true
	}
	if p.gets >= GetWindow {
		return false
	}
	p.gets++
	r.ensureUse(p, o.rank).gets++
	h := r.emitRequest(p, o, id, wire.Get)
	h.Tag, h.B = o.offset, o.total
	o.emitted, o.waits = true, 1
	return true
}

// getEnded counts the end of a get and wakes the peer's queues. A flush waits for the gets of
// its rank: if it were answered earlier, the window could be freed before all is read.
func (r *Room) getEnded(p *peer, rank uint32) {
	p.gets--
	r.ensureUse(p, rank).gets--
	r.channel.Wake(p.id)
}

// emitAccess emits the next fragment of a Put or Acc. Up to link.InlineMax bytes are copied
// into the frame, and the operation ends at once; others end when the last fragment is
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
	r.recordFrame(p, o, h.Seq)
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

// flushAll sends a flush to each connected sidecar, after the operations that the rank has
// queued there.
func (r *Room) flushAll(o *origin, id uint64) {
	o.emitted = true
	r.effort += ranks.StepEffort * uint64(len(r.peers))
	for i := range r.peers {
		if p := link.Peer(i); r.channel.PeerState(p)&(Idle|Ended) == 0 {
			o.asked = append(o.asked, p)
		}
	}
	if o.waits = len(o.asked); o.waits == 0 {
		r.End(id, shm.StatusOK)
		return
	}
	for _, peer := range o.asked {
		r.access(r.peer(peer), o, id, r.channel.PeerState(peer))
	}
}

// dropAccesses ends the queued operations of a peer that is lost.
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
