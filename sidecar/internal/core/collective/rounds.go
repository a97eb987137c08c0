package collective

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// startRound starts rounds until one has to wait: for messages, for its turn to
// copy and fold, or for the application.
func (r *Room) startRound(id uint64, st *call) {
	for n := 0; st.round < st.plan.Rounds(); n++ {
		st.steps = st.plan.Round(st.round, st.steps[:0])
		st.local, st.done, st.open = 0, 0, st.open[:0]
		// A step may finish while the round is being posted: the guard keeps
		// it from running the local steps too early.
		st.posting = true
		for i := range st.steps {
			r.startStep(id, st, &st.steps[i])
		}
		st.posting = false
		if st.pending > 0 || r.dispute != nil { // the latter ends the job at the next step
			return
		}
		if st.failed != 0 {
			break // a step that ended at once, badly: the others' bytes are not here
		}
		if n == roundsAtOnce {
			r.queueLocal(id, st)
			return
		}
		if !r.startLocal(id, st) {
			return
		}
		if st.failed != 0 {
			break
		}
		st.round++
	}
	r.End(id, shm.StatusOK) // or what has failed
}

// roundsAtOnce is how many rounds without messages a collective does in its
// turn: in a large job most rounds of an alltoallv may be empty.
const roundsAtOnce = 256

func (st *call) tag(t uint32) uint64 { return uint64(st.seq)<<32 | uint64(t) }

func (st *call) at(b coll.Buf, off, n int64) link.Ref {
	if n == 0 {
		return link.Ref{}
	}
	return st.mem[b].Slice(uint64(off), uint64(n))
}

// startStep starts a send or a receive of the round.
func (r *Room) startStep(id uint64, st *call, x *coll.Step) {
	if x.Op != coll.Send && x.Op != coll.Recv {
		return
	}
	st.pending++
	m := Message{
		Session: st.member.session.ID(), Collective: id,
		Peer: st.comm.rank(x.Peer), Context: st.comm.context, Tag: st.tag(x.Tag),
	}
	if x.Op == coll.Recv {
		m.Memory = st.at(x.Dst, x.DstOff, x.Len)
		r.messages.Receive(m)
		return
	}
	m.Memory = st.at(x.Src, x.SrcOff, x.Len)
	m.Data, m.Announced = st.identity.Immediate, st.identity.announced
	r.messages.Send(m)
}

// Opened notes a message of a round that has a state of its own.
func (r *Room) Opened(id uint64, m MessageID) {
	if st := r.calls.Get(id); st != nil {
		st.open = append(st.open, m)
	}
}

// Done counts a finished message of a collective.
func (r *Room) Done(id uint64, status shm.Status) {
	st := r.calls.Get(id)
	if st == nil {
		return
	}
	st.pending--
	if status != shm.StatusOK && st.failed == 0 {
		st.failed = status
	}
	if st.pending > 0 || st.posting || r.dispute != nil {
		return
	}
	if st.failed != 0 {
		r.End(id, st.failed)
		return
	}
	if r.startLocal(id, st) {
		r.nextRound(id, st)
	}
}

// nextRound goes on after the local steps of a round.
func (r *Room) nextRound(id uint64, st *call) {
	if st.failed != 0 {
		r.End(id, st.failed)
		return
	}
	st.round++
	r.startRound(id, st)
}

// localAtOnce is what a round copies and folds without waiting for its turn.
const localAtOnce = 32 << 10

// startLocal does the local steps of a round, or has them wait for their turn;
// false: they are not done.
func (r *Room) startLocal(id uint64, st *call) bool {
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
		return r.runLocal(st, localAtOnce) > 0
	}
	r.queueLocal(id, st)
	return false
}

func (r *Room) queueLocal(id uint64, st *call) {
	st.queued = true
	r.locals.Add(st.member.session.Rank(), id)
}

// Advance copies and folds for the collectives whose turn it is, a piece for
// each rank in turn, and returns how many pieces it were.
func (r *Room) Advance() (pieces int) {
	budget := int64(AdvanceBytes)
	for ; budget > 0 && !r.locals.Empty(); pieces++ {
		id := *r.locals.Turn()
		st := r.calls.Get(id)
		if st == nil || !st.queued {
			r.locals.Pass(false)
			continue
		}
		if st.reading != nil {
			budget -= r.takeTurn(id, st)
			continue
		}
		left := r.runLocal(st, localPiece)
		budget -= max(localPiece-max(left, 0), localLeast)
		if left == 0 {
			r.locals.Pass(true)
			continue
		}
		st.queued = false
		r.locals.Pass(false)
		if left > 0 {
			r.nextRound(id, st)
		}
	}
	return pieces
}

// localPiece is what one collective copies and folds in its turn: a multiple of
// every element's size.
const localPiece = 64 << 10

// AdvanceBytes is what one Advance copies and folds at most, in bytes; one that is
// folded counts as coll.Cost.
const AdvanceBytes = 128 << 10

// localLeast is what a turn counts at least: rounds cost time without a byte.
const localLeast = AdvanceBytes / 4

// runLocal does local steps of the round in order, up to budget bytes. It
// returns what is left of the budget when all are done, at least 1; 0: there is
// more to do; -1: it waits for the application to run a user operation.
func (r *Room) runLocal(st *call, budget int64) int64 {
	for ; st.local < len(st.steps); st.local++ {
		x := &st.steps[st.local]
		if x.Op != coll.Copy && x.Op != coll.Fold {
			continue
		}
		if x.Op == coll.Fold && st.op == coll.User {
			r.callUser(st, x)
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
			r.localStep(st, x, n)
			st.done += uint64(n)
			budget -= n * cost
		}
		st.done = 0
	}
	return max(budget, 1)
}

// localStep does the next n bytes of a step.
func (r *Room) localStep(st *call, x *coll.Step, n int64) {
	off := int64(st.done)
	if x.Op == coll.Copy && x.Dst == x.Src && x.DstOff > x.SrcOff {
		off = x.Len - off - n // from the end, where the ranges may overlap
	}
	dst, src := r.ports.Bytes(st.at(x.Dst, x.DstOff+off, n)), r.ports.Bytes(st.at(x.Src, x.SrcOff+off, n))
	if x.Op == coll.Copy {
		copy(dst, src)
	} else if coll.Apply(st.op, st.typ, dst, src) != nil {
		st.failed = shm.StatusUnsupported
	}
}

// callUser asks the application to combine two ranges of its arena.
func (r *Room) callUser(st *call, x *coll.Step) {
	st.calling = true
	d := shm.Descriptor{Op: shm.OpReduce, Req: st.req, Status: shm.Status(st.typ)}
	if x.Reversed {
		d.Flags = shm.FlagSwap
	}
	dst, src, arena := st.at(x.Dst, x.DstOff, x.Len), st.at(x.Src, x.SrcOff, x.Len), st.member.session.Arena().Off
	d.SetBody(dst.Off-arena, uint64(x.Len), src.Off-arena, 0)
	r.sessions.Publish(st.member.session.ID(), &d)
}

// Reduced goes on with a collective, of request req, after a user operation.
func (r *Room) Reduced(req uint32, id uint64) error {
	st := r.calls.Get(id)
	if st == nil || !st.calling {
		return fmt.Errorf("no operation of request %d was asked for", req)
	}
	st.calling = false
	st.local++
	r.queueLocal(id, st)
	return nil
}

// End completes a collective. Messages of it that are still under way find
// it gone.
func (r *Room) End(id uint64, status shm.Status) {
	st := r.calls.Get(id)
	if st == nil {
		return
	}
	s, req, cost, open := st.member.session, st.req, st.cost, st.open
	if status == shm.StatusOK {
		status = st.failed
	}
	if st.plan != nil {
		if status == shm.StatusOK && r.leftOver(st) {
			return // the job ends with it at the next step
		}
		st.comm.active--
		st.comm.broken = st.comm.broken || status != shm.StatusOK
	}
	if st.pending == 0 {
		open = nil
	}
	deserter := uint64(0)
	if status == shm.StatusPeerLeft {
		deserter = r.deserter(st)
	}
	r.spareVectors(st)
	if st.reading != nil {
		st.member.reading = false
	}
	st.plan = nil // the table keeps its places
	r.calls.Release(id)
	for _, m := range open {
		r.messages.Cancel(m)
	}
	r.complete(s, req, status, 0, deserter, cost)
}

// deserter is 1 more than the rank that a collective's round needs and that has left;
// 0: it is not known.
func (r *Room) deserter(st *call) uint64 {
	for i := range st.steps {
		if x := &st.steps[i]; x.Op == coll.Send || x.Op == coll.Recv {
			if rank := st.comm.rank(x.Peer); r.job.HasLeft(rank) {
				return uint64(rank) + 1
			}
		}
	}
	return 0
}
