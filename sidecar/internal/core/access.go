package core

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
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

// getWindow bounds the gets of one sidecar that a peer has not answered
// wholly: each takes a record there (P§5.6).
const getWindow = 256

// access starts a one-sided operation, or queues it behind others of its rank.
func (c *Core) access(p *peer, o *origin, id uint64) {
	q := p.accessesOf(o.rank)
	if q == nil && !p.ahead() && c.stepAccess(p, o, id) {
		return
	}
	if q == nil {
		q = c.newAccesses(p, o.rank)
	}
	q.ids.Push(id)
	c.touch(p)
	c.reach(p)
}

// accessFirst starts an operation before what its rank has queued since.
func (c *Core) accessFirst(p *peer, o *origin, id uint64) {
	q := p.accessesOf(o.rank)
	if q == nil {
		c.access(p, o, id)
		return
	}
	q.ids.Unshift(id)
	c.touch(p)
}

// ahead reports that as much waits for the link to p as is useful.
func (p *peer) ahead() bool {
	return p.out.queued >= p.most || p.out.unpostedFrames() >= framesAhead
}

func (p *peer) accessesOf(rank uint32) *accessQueue {
	for _, q := range p.accesses {
		if q.rank == rank {
			return q
		}
	}
	return nil
}

func (c *Core) newAccesses(p *peer, rank uint32) *accessQueue {
	var q *accessQueue
	if n := len(c.spareAccesses); n > 0 {
		q, c.spareAccesses = c.spareAccesses[n-1], c.spareAccesses[:n-1]
	} else {
		q = new(accessQueue)
	}
	q.rank = rank
	p.accesses = append(p.accesses, q)
	p.streams.Add(rank, entry{entryAccess, uint64(rank)})
	return q
}

// feedAccess emits the next frame of a rank's accesses; false: there are none
// any more.
func (c *Core) feedAccess(p *peer, rank uint32) bool {
	q := p.accessesOf(rank)
	for q.ids.Len() > 0 {
		id := *q.ids.First()
		o := c.origins.Get(id)
		if o != nil && !c.stepAccess(p, o, id) {
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
		c.spareAccesses = append(c.spareAccesses, q)
	}
	return false
}

// stepAccess takes the next step of an operation: the link's own write or read
// where the window can be reached so, a frame where not. false: it has more, or
// has to wait.
func (c *Core) stepAccess(p *peer, o *origin, id uint64) bool {
	switch o.op {
	case shm.OpPut, shm.OpGet:
		switch c.reachFor(p, o, id) {
		case reachStarted:
			return true
		case reachFull:
			return false
		}
	case shm.OpFlush, shm.OpUnlock:
		if use := c.usesOf(p, o.rank); use != nil && use.remote+use.gets > 0 {
			return false // reachEnded and getEnded go on
		}
		fallthrough
	case shm.OpFetch, shm.OpCas:
		if o.target != shm.AnySource && !p.mayAsk(o) {
			return false
		}
	}
	return c.sayAccess(p, o, id)
}

// sayAccess emits the next frame of an operation; false as in stepAccess.
func (c *Core) sayAccess(p *peer, o *origin, id uint64) bool {
	switch o.op {
	case shm.OpPut:
		return c.emitAccess(p, o, id, wire.Put, p.fragment)
	case shm.OpAcc:
		return c.emitAccess(p, o, id, wire.Acc, min(accFragment, p.fragment&^15))
	case shm.OpGet:
		return c.emitGet(p, o, id)
	case shm.OpFetch, shm.OpCas:
		h := c.emitRequest(p, o, id, wire.Fetch)
		h.Tag, h.B = o.offset, o.word
	case shm.OpLock:
		h := c.emitRequest(p, o, id, wire.Lock)
		h.B = o.word
	case shm.OpPost, shm.OpComplete:
		return c.tellEpoch(p, o, id)
	case shm.OpUnlock:
		c.emitRequest(p, o, id, wire.Unlock)
	case shm.OpFlush:
		if o.target != shm.AnySource && c.quiet(p, o) {
			c.endOrigin(id, shm.StatusOK)
			return true
		}
		h := c.emitRequest(p, o, id, wire.Flush)
		if o.target == shm.AnySource {
			h.Dst, h.Tag = c.firstRank(p), 1
			return true // counted by flushAll
		}
		o.sent = p.out.last // up to here it is flushed when the answer has come
	}
	o.emitted, o.waits = true, 1
	return true
}

// emitRequest emits a frame with o's operand, if it has one.
func (c *Core) emitRequest(p *peer, o *origin, id uint64, t wire.Type) *wire.Header {
	if o.op != shm.OpFlush {
		c.spoke(p, o)
	}
	f, _ := c.emit(p, t)
	h := &f.Head
	h.Context, h.Src, h.Dst, h.A = o.context, o.rank, o.target, id
	h.Length = uint32(copy(f.Inline[:], o.operand[:o.length]))
	return h
}

// emitGet asks for all that a get wants, if the peer has not too many of them.
func (c *Core) emitGet(p *peer, o *origin, id uint64) bool {
	if o.total == 0 {
		c.endOrigin(id, shm.StatusOK)
		return true
	}
	if p.gets >= getWindow {
		return false
	}
	p.gets++
	c.useOf(p, o.rank).gets++
	h := c.emitRequest(p, o, id, wire.Get)
	h.Tag, h.B = o.offset, o.total
	o.emitted, o.waits = true, 1
	return true
}

// getEnded makes room for another get, and lets a flush go that has waited for this
// one: it would be answered before all is read, and its window could be freed then.
func (c *Core) getEnded(p *peer, rank uint32) {
	p.gets--
	c.useOf(p, rank).gets--
	if !p.streams.Empty() {
		c.touch(p)
	}
}

// emitAccess sends the next fragment of a Put or Accumulate. Small ones leave
// the application's memory at once; others are done when the last fragment is
// acknowledged.
func (c *Core) emitAccess(p *peer, o *origin, id uint64, t wire.Type, fragment uint64) bool {
	if o.total == 0 {
		c.endOrigin(id, shm.StatusOK)
		return true
	}
	c.spoke(p, o)
	n := min(fragment, o.total-o.sent)
	f, a := c.emit(p, t)
	h := &f.Head
	h.Context, h.Src, h.Dst = o.context, o.rank, o.target
	h.Tag, h.A, h.Length = o.offset+o.sent, o.tag, uint32(n)
	if o.total <= uint64(len(f.Inline)) {
		copy(f.Inline[:], c.ports.Bytes(o.buf))
		c.endOrigin(id, shm.StatusOK)
		return true
	}
	f.Payload = o.buf.Slice(o.sent, n)
	*a = after{kind: afterOrigin, session: o.owner.session, id: id, hold: true}
	c.ranks.Hold(o.owner.session)
	o.waits++
	o.sent += n
	p.out.queued += n
	if o.sent < o.total {
		return false
	}
	h.Flags |= wire.FlagAckNow
	o.emitted = true
	return true
}

// flushAll asks every sidecar that was ever talked to, behind what its rank has
// still to say there.
func (c *Core) flushAll(o *origin, id uint64) {
	o.emitted = true
	c.effort += ranks.StepEffort * uint64(len(c.peers))
	for i := range c.peers {
		if p := &c.peers[i]; p.state != peerIdle && !c.over(p) {
			o.asked = append(o.asked, p.id)
		}
	}
	if o.waits = len(o.asked); o.waits == 0 {
		c.endOrigin(id, shm.StatusOK)
		return
	}
	for _, peer := range o.asked {
		c.access(&c.peers[peer], o, id)
	}
}

// dropAccesses ends what was still to be said to a dead peer.
func (c *Core) dropAccesses(p *peer, status shm.Status) {
	queues := p.accesses
	p.accesses = nil
	for _, q := range queues {
		for _, id := range q.ids.Rest() {
			o := c.origins.Get(id)
			switch {
			case o == nil:
			case o.target == shm.AnySource:
				c.flushAnswered(id, o, p, status)
			default:
				c.endOrigin(id, status)
			}
		}
	}
}
