package core

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// startRound starts rounds until one has to wait: for messages, for its turn to
// copy and fold, or for the application.
func (c *Core) startRound(id uint64, st *collective) {
	for n := 0; st.round < st.plan.Rounds(); n++ {
		st.steps = st.plan.Round(st.round, st.steps[:0])
		st.local, st.done, st.open = 0, 0, st.open[:0]
		// A step may finish while the round is being posted: the guard keeps
		// it from running the local steps too early.
		st.posting = true
		for i := range st.steps {
			c.startStep(id, st, &st.steps[i])
		}
		st.posting = false
		if st.pending > 0 || c.dispute != nil { // the latter ends the job at the next step
			return
		}
		if st.failed != 0 {
			break // a step that ended at once, badly: the others' bytes are not here
		}
		if n == roundsAtOnce {
			c.queueLocal(id, st)
			return
		}
		if !c.startLocal(id, st) {
			return
		}
		if st.failed != 0 {
			break
		}
		st.round++
	}
	c.endColl(id, shm.StatusOK) // or what has failed
}

// roundsAtOnce is how many rounds without messages a collective does in its
// turn: in a large job most rounds of an alltoallv may be empty.
const roundsAtOnce = 256

func (st *collective) tag(t uint32) uint64 { return uint64(st.seq)<<32 | uint64(t) }

func (st *collective) at(b coll.Buf, off, n int64) link.Ref {
	if n == 0 {
		return link.Ref{}
	}
	return st.mem[b].Slice(uint64(off), uint64(n))
}

// startStep starts a send or a receive of the round.
func (c *Core) startStep(id uint64, st *collective, x *coll.Step) {
	s := c.sessions[st.owner.session]
	o := owner{session: s.id, coll: id}
	switch x.Op {
	case coll.Send:
		st.pending++
		c.startSend(s, &outgoing{
			owner: o, src: s.endpoint.rank, dst: st.comm.rank(x.Peer), context: st.comm.context,
			tag: st.tag(x.Tag), total: uint64(x.Len), payload: st.at(x.Src, x.SrcOff, x.Len), class: shm.ClassArena, coll: true, data: st.identity.Immediate, about: st.identity.announced,
		})
	case coll.Recv:
		st.pending++
		r, rid := c.recvs.Alloc()
		r.owner, r.endpoint, r.coll, r.class = o, s.endpoint, true, shm.ClassArena
		r.buf, r.capacity = st.at(x.Dst, x.DstOff, x.Len), uint64(x.Len)
		st.open = append(st.open, stepRef{rid, false})
		c.startRecv(r, rid, match.Pattern{Context: st.comm.context, Source: st.comm.rank(x.Peer), Tag: st.tag(x.Tag)})
	}
}

// collOpens notes a send of a round that has a state of its own.
func (c *Core) collOpens(id uint64, ref stepRef) {
	if st := c.colls.Get(id); st != nil {
		st.open = append(st.open, ref)
	}
}

// collStepDone counts a finished message of a collective.
func (c *Core) collStepDone(id uint64, status shm.Status) {
	st := c.colls.Get(id)
	if st == nil {
		return
	}
	st.pending--
	if status != shm.StatusOK && st.failed == 0 {
		st.failed = status
	}
	if st.pending > 0 || st.posting || c.dispute != nil {
		return
	}
	if st.failed != 0 {
		c.endColl(id, st.failed)
		return
	}
	if c.startLocal(id, st) {
		c.nextRound(id, st)
	}
}

// nextRound goes on after the local steps of a round.
func (c *Core) nextRound(id uint64, st *collective) {
	if st.failed != 0 {
		c.endColl(id, st.failed)
		return
	}
	st.round++
	c.startRound(id, st)
}

// localAtOnce is what a round copies and folds without waiting for its turn.
const localAtOnce = 32 << 10

// startLocal does the local steps of a round, or has them wait for their turn;
// false: they are not done.
func (c *Core) startLocal(id uint64, st *collective) bool {
	bytes := int64(0)
	for i := range st.steps {
		switch x := &st.steps[i]; x.Op {
		case coll.Copy:
			bytes += x.Len
		case coll.Fold:
			bytes += x.Len * coll.Cost(st.op)
		}
	}
	if bytes <= localAtOnce {
		return c.runLocal(st, localAtOnce) > 0
	}
	c.queueLocal(id, st)
	return false
}

func (c *Core) queueLocal(id uint64, st *collective) {
	st.queued = true
	c.locals.Add(c.sessions[st.owner.session].endpoint.rank, id)
}

// runLocals copies and folds for the collectives whose turn it is, a piece for
// each rank in turn, and returns how many pieces it were.
func (c *Core) runLocals(budget int64) (pieces int) {
	for ; budget > 0 && !c.locals.Empty(); pieces++ {
		id := c.locals.Turn()
		st := c.colls.Get(id)
		if st == nil || !st.queued {
			c.locals.Pass(false)
			continue
		}
		if st.reading != nil {
			budget -= c.takeTurn(id, st)
			continue
		}
		left := c.runLocal(st, localPiece)
		budget -= max(localPiece-max(left, 0), localLeast)
		if left == 0 {
			c.locals.Pass(true)
			continue
		}
		st.queued = false
		c.locals.Pass(false)
		if left > 0 {
			c.nextRound(id, st)
		}
	}
	return pieces
}

// localPiece is what one collective copies and folds in its turn: a multiple of
// every element's size.
const localPiece = 64 << 10

// localLeast is what a turn counts at least: rounds cost time without a byte.
const localLeast = advanceBytes / 4

// runLocal does local steps of the round in order, up to budget bytes. It
// returns what is left of the budget when all are done, at least 1; 0: there is
// more to do; -1: it waits for the application to run a user operation.
func (c *Core) runLocal(st *collective, budget int64) int64 {
	for ; st.local < len(st.steps); st.local++ {
		x := &st.steps[st.local]
		if x.Op != coll.Copy && x.Op != coll.Fold {
			continue
		}
		if x.Op == coll.Fold && st.op == coll.User {
			c.callUser(st, x)
			return -1
		}
		for int64(st.done) < x.Len {
			if budget <= 0 {
				return 0
			}
			n, cost := min(x.Len-int64(st.done), budget), int64(1)
			if x.Op == coll.Fold {
				cost = coll.Cost(st.op)
				n = min(n, max(budget/cost&^15, 64))
			}
			c.localStep(st, x, n)
			st.done += uint64(n)
			budget -= n * cost
		}
		st.done = 0
	}
	return max(budget, 1)
}

// localStep does the next n bytes of a step.
func (c *Core) localStep(st *collective, x *coll.Step, n int64) {
	off := int64(st.done)
	if x.Op == coll.Copy && x.Dst == x.Src && x.DstOff > x.SrcOff {
		off = x.Len - off - n // from the end, where the ranges may overlap
	}
	dst, src := c.ports.Bytes(st.at(x.Dst, x.DstOff+off, n)), c.ports.Bytes(st.at(x.Src, x.SrcOff+off, n))
	if x.Op == coll.Copy {
		copy(dst, src)
	} else if coll.Apply(st.op, st.typ, dst, src) != nil {
		st.failed = shm.StatusUnsupported
	}
}

// callUser asks the application to combine two ranges of its arena.
func (c *Core) callUser(st *collective, x *coll.Step) {
	st.calling = true
	s := c.sessions[st.owner.session]
	d := shm.Descriptor{Op: shm.OpReduce, Req: st.owner.req, Status: shm.Status(st.typ)}
	if x.Reversed {
		d.Flags = shm.FlagSwap
	}
	dst, src := st.at(x.Dst, x.DstOff, x.Len), st.at(x.Src, x.SrcOff, x.Len)
	d.SetBody(dst.Off-s.arena.Off, uint64(x.Len), src.Off-s.arena.Off, 0)
	c.publish(s.id, &d)
}

// submitReduced goes on after a user operation.
func (c *Core) submitReduced(s *session, d *shm.Descriptor) error {
	if int(d.Req) >= len(s.requests) || s.requests[d.Req].kind == requestFree {
		return nil // ended meanwhile
	}
	if s.requests[d.Req].kind != requestColl {
		return fmt.Errorf("request %d is no collective", d.Req)
	}
	id := s.requests[d.Req].id
	st := c.colls.Get(id)
	if st == nil || !st.calling {
		return fmt.Errorf("no operation of request %d was asked for", d.Req)
	}
	st.calling = false
	st.local++
	c.queueLocal(id, st)
	return nil
}

// endColl completes a collective. Messages of it that are still under way find
// it gone.
func (c *Core) endColl(id uint64, status shm.Status) {
	st := c.colls.Get(id)
	if st == nil {
		return
	}
	o, open := st.owner, st.open
	if status == shm.StatusOK {
		status = st.failed
	}
	if st.plan != nil {
		if status == shm.StatusOK && c.leftOver(c.sessions[o.session].endpoint, st) {
			return // the job ends with it at the next step
		}
		st.comm.active--
		st.comm.broken = st.comm.broken || status != shm.StatusOK
	}
	if st.pending == 0 {
		open = nil
	}
	d := shm.Descriptor{Op: shm.OpDone, Req: o.req, Status: status}
	if status == shm.StatusPeerLeft {
		d.SetBody(0, 0, c.deserter(st), 0)
	}
	c.spareVectors(st)
	if st.reading != nil {
		c.sessions[o.session].reading = false
	}
	c.sessions[o.session].refund(st.cost)
	st.plan = nil // the table keeps its places
	c.colls.Release(id)
	for _, x := range open {
		c.dropStep(x)
	}
	c.complete(o.session, &d)
	c.unhold(o.session)
}

// deserter is 1 more than the rank that a collective's round needs and that has left;
// 0: it is not known.
func (c *Core) deserter(st *collective) uint64 {
	for i := range st.steps {
		if x := &st.steps[i]; x.Op == coll.Send || x.Op == coll.Recv {
			if rank := st.comm.rank(x.Peer); c.hasLeft(rank) {
				return uint64(rank) + 1
			}
		}
	}
	return 0
}

// dropStep ends a message of a collective that ends early.
func (c *Core) dropStep(x stepRef) {
	if x.send {
		if st := c.sends.Get(x.id); st != nil {
			c.forsake(x.id, st)
		}
	} else if r := c.recvs.Get(x.id); r != nil {
		c.abandon(x.id, r, shm.StatusAborted)
	}
}
