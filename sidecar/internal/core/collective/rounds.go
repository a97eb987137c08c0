package collective

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// startRound starts rounds until one has to wait for messages, for its turn to copy and
// fold, or for the application.
func (r *Room) startRound(id uint64, st *call) {
	for n := 0; st.round < st.plan.Rounds(); n++ {
		st.steps = st.plan.Round(st.round, st.steps[:0])
		st.local, st.done, st.open = 0, 0, st.open[:0]
		// A message may end while others of the round are not started yet: posting keeps
		// Done from running the local steps too early.
		st.posting = true
		for i := range st.steps {
			r.startStep(id, st, &st.steps[i])
		}
		st.posting = false
		if st.pending > 0 || r.dispute != nil { // a dispute ends the job in the next step
			return
		}
		if st.failed != 0 {
			break // a message failed at once: the round's data are incomplete
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
	r.End(id, shm.StatusOK) // End replaces the status by st.failed
}

// roundsAtOnce bounds the rounds without messages that a collective runs in one turn: in a
// large job most rounds of an alltoallv may be empty.
const roundsAtOnce = 256

// tag returns the tag of a message: the collective's number and the step's tag.
func (st *call) tag(t uint32) uint64 { return uint64(st.seq)<<32 | uint64(t) }

// at returns a range of one of the collective's buffers.
func (st *call) at(b coll.Buf, off, n int64) link.Ref {
	if n == 0 {
		return link.Ref{}
	}
	return st.mem[b].Slice(uint64(off), uint64(n))
}

// startStep starts a step if it is a send or a receive.
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

// Opened records a message that did not end at once, so that End can cancel it.
func (r *Room) Opened(id uint64, m MessageID) {
	if st := r.calls.Get(id); st != nil {
		st.open = append(st.open, m)
	}
}

// Done records the end of a message; the last one of a round continues the collective.
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

// nextRound continues after the local steps of a round.
func (r *Room) nextRound(id uint64, st *call) {
	if st.failed != 0 {
		r.End(id, st.failed)
		return
	}
	st.round++
	r.startRound(id, st)
}

// localAtOnce is the number of bytes that a round may copy and fold without queueing:
// below it, a turn of another rank is delayed by a few microseconds at most.
const localAtOnce = 32 << 10

// startLocal runs the local steps of a round, or queues the collective if they are long;
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
		return r.runLocal(id, st, localAtOnce) > 0
	}
	r.queueLocal(id, st)
	return false
}

// queueLocal makes Advance continue the collective.
func (r *Room) queueLocal(id uint64, st *call) {
	st.queued = true
	r.locals.Add(st.member.session.Rank(), id)
}

// Advance copies and folds for queued collectives, one piece for each rank in turn, up to
// AdvanceBytes, and returns the number of pieces.
func (r *Room) Advance() (pieces int) {
	budget := int64(AdvanceBytes)
	for ; budget > 0 && !r.locals.Empty(); pieces++ {
		id := *r.locals.Turn()
		st := r.calls.Get(id)
		if st == nil || !st.queued {
			r.locals.EndTurn(false)
			continue
		}
		if st.reading != nil {
			budget -= r.resumeVectors(id, st)
			continue
		}
		left := r.runLocal(id, st, localPiece)
		budget -= max(localPiece-max(left, 0), localLeast)
		if left == 0 {
			r.locals.EndTurn(true)
			continue
		}
		st.queued = false
		r.locals.EndTurn(false)
		if left > 0 {
			r.nextRound(id, st)
		}
	}
	return pieces
}

// localPiece is the number of bytes that one collective copies and folds in a turn: a
// multiple of the size of each type, so that no element is split.
const localPiece = 64 << 10

// AdvanceBytes bounds the bytes that one Advance copies and folds, so that messages of
// other ranks wait some ten microseconds at most; a folded byte counts as coll.Cost bytes.
const AdvanceBytes = 128 << 10

// localLeast is the least that a piece counts: a round without bytes costs time too.
const localLeast = AdvanceBytes / 4

// runLocal runs local steps of the round in order, up to budget bytes. It returns the rest
// of the budget, at least 1, if all are done; 0 if steps are left; -1 if the application
// has to run a user operation, or the Folder has begun to combine.
func (r *Room) runLocal(id uint64, st *call, budget int64) int64 {
	for ; st.local < len(st.steps); st.local++ {
		x := &st.steps[st.local]
		if x.Op != coll.Copy && x.Op != coll.Fold {
			continue
		}
		if x.Op == coll.Fold && st.op == coll.User {
			r.callUser(st, x)
			return -1
		}
		if x.Op == coll.Fold && st.done == 0 && r.fold(id, st, x) {
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

// localStep runs the next n bytes of a step.
func (r *Room) localStep(st *call, x *coll.Step, n int64) {
	off := int64(st.done)
	if x.Op == coll.Copy && x.Dst == x.Src && x.DstOff > x.SrcOff {
		off = x.Len - off - n // from the end, because the ranges may overlap
	}
	dst, src := r.ports.Bytes(st.at(x.Dst, x.DstOff+off, n)), r.ports.Bytes(st.at(x.Src, x.SrcOff+off, n))
	if x.Op == coll.Copy {
		copy(dst, src)
	} else if coll.Apply(st.op, st.typ, dst, src) != nil {
		st.failed = shm.StatusUnsupported
	}
}

// fold makes the Folder combine, if there is one and it takes the range.
func (r *Room) fold(id uint64, st *call, x *coll.Step) bool {
	f := r.cfg.Folder
	st.away = f != nil && f.Fold(st.member.session.Rank(), id, st.op, st.typ, st.at(x.Dst, x.DstOff, x.Len), st.at(x.Src, x.SrcOff, x.Len))
	return st.away
}

// Folded continues a collective after its fold. If the fold has failed, its memory was not
// accessible.
func (r *Room) Folded(id uint64, failed bool) {
	st := r.calls.Get(id)
	if st == nil || !st.away {
		return
	}
	st.away = false
	if failed {
		st.failed = shm.StatusInvalid
	}
	st.local++
	r.queueLocal(id, st)
}

// callUser publishes the request to combine two ranges of the application's arena.
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

// Reduced continues the collective of request req after a user operation.
func (r *Room) Reduced(req uint32, id uint64) error {
	st := r.calls.Get(id)
	if st == nil || !st.calling {
		return fmt.Errorf("result of a user operation for request %d, which has none open", req)
	}
	st.calling = false
	st.local++
	r.queueLocal(id, st)
	return nil
}

// End completes a collective. A message of it that ends later finds it gone.
func (r *Room) End(id uint64, status shm.Status) {
	st := r.calls.Get(id)
	if st == nil {
		return
	}
	if st.away {
		r.cfg.Folder.Await(id) // the application may use the memory again
	}
	s, req, cost, open := st.member.session, st.req, st.cost, st.open
	if status == shm.StatusOK {
		status = st.failed
	}
	if st.plan != nil {
		if status == shm.StatusOK && r.hasSurplus(st) {
			return // the dispute ends the job in the next step
		}
		st.comm.active--
		st.comm.broken = st.comm.broken || status != shm.StatusOK
	}
	if st.pending == 0 {
		open = nil
	}
	departed := uint64(0)
	if status == shm.StatusPeerLeft {
		departed = r.departed(st)
	}
	r.releaseVectors(st)
	if st.reading != nil {
		st.member.reading = false
	}
	st.plan = nil // for the garbage collector: the table keeps released entries
	r.calls.Release(id)
	for _, m := range open {
		r.messages.Cancel(m)
	}
	r.complete(s, req, status, 0, departed, cost)
}

// departed returns 1 more than the rank that the collective's round needs and that has
// left the job; 0: no such rank is known.
func (r *Room) departed(st *call) uint64 {
	for i := range st.steps {
		if x := &st.steps[i]; x.Op == coll.Send || x.Op == coll.Recv {
			if rank := st.comm.rank(x.Peer); r.job.HasLeft(rank) {
				return uint64(rank) + 1
			}
		}
	}
	return 0
}
