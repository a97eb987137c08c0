package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// comm is a communicator as one application knows it.
type comm struct {
	context uint32
	*group
	me  int
	seq uint32 // collectives started on it; part of their messages' tags

	identity own    // of the last of them, if one was
	active   int    // that have begun and not ended
	base     uint32 // those before this one have ended
	broken   bool   // one has failed here: what others send for it is nobody's
}

// call is a collective that is under way. Its schedule is run round by round:
// the sends and receives of a round together, then its local steps (DESIGN
// §5, Collectives). It needs nothing of the application meanwhile, but for
// user-defined operations.
type call struct {
	member   *member
	req      uint32
	comm     *comm
	seq      uint32
	plan     *coll.Plan
	mem      [3]link.Ref // by coll.Buf
	kind     coll.Kind
	identity own
	bytes    uint64 // that it puts out here
	window   uint32 // that a barrier fences; 0: none
	op       coll.Op
	typ      coll.Type
	round    int
	steps    []coll.Step
	local    int         // next local step of the round
	done     uint64      // bytes of it that are done
	pending  int         // sends and receives not finished
	open     []MessageID // of the round, those that have a state of their own
	posting  bool
	queued   bool // its local steps wait for their turn
	calling  bool // the application runs a user operation
	failed   shm.Status
	vectors  [collVectors][]int64 // counts and displacements, as the plan has them
	reading  *reading             // they are not here yet
	cost     int64                // charged to its application
}

// SubmitComm makes a communicator known: of the ranks that it lists, or of those
// of another communicator.
func (r *Room) SubmitComm(s ranks.SessionID, d *shm.Descriptor) error {
	b := r.members[s]
	if d.Context == 0 || d.Context >= 1<<31 || b.comms[d.Context] != nil || len(b.comms) >= commLimit {
		return fmt.Errorf("communicator %d exists, or cannot, or there are %d of them", d.Context, len(b.comms))
	}
	g, err := r.namedGroup(b, d)
	if errors.Is(err, errGroups) { // an honest program may come to it
		if err := b.session.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
			return err
		}
		r.sessions.Finish(s, d.Req, shm.StatusNoMemory)
		return nil
	}
	if err != nil {
		return fmt.Errorf("communicator %d: %w", d.Context, err)
	}
	m := &comm{context: d.Context, group: g, me: g.place(b.session.Rank())}
	if m.me < 0 {
		err = fmt.Errorf("communicator %d: rank %d is no member", d.Context, b.session.Rank())
	} else {
		err = b.session.Claim(d.Req, ranks.RequestPlain, 0)
	}
	if err != nil {
		r.dropGroup(g)
		return err
	}
	b.comms[d.Context] = m
	r.sessions.Finish(s, d.Req, shm.StatusOK)
	return nil
}

// namedGroup is the group that a descriptor names.
func (r *Room) namedGroup(b *member, d *shm.Descriptor) (*group, error) {
	if d.Class == shm.ClassNone {
		if d.Aux() > math.MaxUint32 || b.comms[uint32(d.Aux())] == nil {
			return nil, fmt.Errorf("ranks of communicator %d, which does not exist", d.Aux())
		}
		g := b.comms[uint32(d.Aux())].group
		g.refs++
		return g, nil
	}
	ref, err := b.session.Memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return nil, err
	}
	n := ref.Len / 4
	if ref.Len%4 != 0 || n == 0 || n > uint64(len(r.cfg.PodOf)) {
		return nil, fmt.Errorf("%d bytes of ranks", ref.Len)
	}
	r.effort += ref.Len
	r.list = slices.Grow(r.list[:0], int(n))[:n] // one private copy, judged by takeGroup
	raw := r.ports.Bytes(ref)
	for i := range r.list {
		r.list[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return r.takeGroup(r.list)
}

// commLimit bounds the communicators of one application.
const commLimit = 4096

// Submit starts a collective (L§5.4).
func (r *Room) Submit(s ranks.SessionID, d *shm.Descriptor) error {
	x := r.members[s]
	block, err := x.session.Memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return err
	}
	if most := uint64(shm.CollBlockBytes + 8*collVectors*len(r.cfg.PodOf)); block.Len > most {
		return fmt.Errorf("collective block of %d bytes, want at most %d", block.Len, most)
	}
	var head [shm.CollBlockBytes]byte
	n := copy(head[:], r.ports.Bytes(block)) // a private copy, judged below
	var b shm.CollBlock
	if err := b.Decode(head[:n]); err != nil {
		return err
	}
	m := x.comms[b.Context]
	if m == nil {
		return fmt.Errorf("no communicator has the number %d", b.Context)
	}
	if n := block.Len - shm.CollBlockBytes; n != uint64(b.Vectors)*uint64(m.size)*8 {
		return fmt.Errorf("collective block with %d bytes of vectors, want %d of %d numbers", n, b.Vectors, m.size)
	}
	st := call{member: x, req: d.Req, comm: m, kind: coll.Kind(b.Kind), op: coll.Op(b.Op), typ: coll.Type(b.Type)}
	if err := st.setMemory(&b); err != nil {
		return err
	}
	st.cost = memory.CollCost + 8*int64(b.Vectors)*int64(m.size)
	if err := x.session.Charge(st.cost); err != nil {
		return err
	}
	p, id := r.calls.Alloc()
	if err := x.session.Claim(d.Req, ranks.RequestColl, id); err != nil {
		r.calls.Release(id)
		return err
	}
	*p = st
	r.sessions.Hold(s)
	if b.Vectors == 0 {
		r.beginColl(id, p, &b)
		return nil
	}
	r.takeVectors(id, p, b, block.Slice(shm.CollBlockBytes, block.Len-shm.CollBlockBytes))
	return nil
}

// setMemory finds the buffers of a collective.
func (st *call) setMemory(b *shm.CollBlock) (err error) {
	for i, x := range [3][2]uint64{{b.In, b.InBytes}, {b.Out, b.OutBytes}, {b.Scratch, b.ScratchBytes}} {
		if x[1] == 0 {
			continue
		}
		if st.mem[i], err = st.member.session.Memory(shm.ClassArena, x[0], x[1]); err != nil {
			return err
		}
	}
	return nil
}

// beginColl starts a collective whose parameters are all here.
func (r *Room) beginColl(id uint64, st *call, b *shm.CollBlock) {
	if status, need := st.planColl(b); status != shm.StatusOK {
		r.refuseColl(id, st, status, need)
		return
	}
	m := st.comm
	st.identity = identity(b, &st.vectors)
	m.seq++
	if m.active++; m.active == 1 {
		m.base = m.seq
	}
	st.seq, m.identity = m.seq, st.identity
	if st.kind == coll.Barrier {
		st.window = b.Root
	}
	st.member.past.add(st)
	r.compareEarly(st.member, m)
	_, out := st.plan.Extents()
	st.bytes = uint64(out)
	r.stats.Begun++
	r.stats.Bytes += uint64(out)
	r.ports.Note(ranks.NoteColl, r.cfg.Self, st.member.session.Rank(), uint64(st.kind), uint64(out), uint64(st.seq))
	r.startRound(id, st)
}

// refuseColl ends a collective that cannot begin, and says how much scratch memory
// it needs where that is why.
func (r *Room) refuseColl(id uint64, st *call, status shm.Status, need uint64) {
	s, req, cost := st.member.session, st.req, st.cost
	r.spareVectors(st)
	r.calls.Release(id)
	r.complete(s, req, status, need, 0, cost)
}

// complete tells the application of the end of a collective, with the scratch memory that
// it lacked, or 1 more than the rank that it lacked; and lets go of what it cost.
func (r *Room) complete(s *ranks.Session, req uint32, status shm.Status, need, deserter uint64, cost int64) {
	s.Refund(cost)
	d := shm.Descriptor{Op: shm.OpDone, Req: req, Status: status}
	d.SetBody(0, need, deserter, 0)
	r.sessions.Complete(s.ID(), &d)
	r.sessions.Unhold(s.ID())
}

// planColl checks the parameters against the memory that they name. Parameters
// that an honest program can get wrong are a status.
func (st *call) planColl(b *shm.CollBlock) (status shm.Status, need uint64) {
	m := st.comm
	p := coll.Params{
		Kind: st.kind, Rank: m.me, Size: m.size, Root: int(b.Root),
		Count: int(min(b.Count, 1<<62)), Elem: int(min(b.Elem, 1<<31)), Algorithm: coll.Algorithm(min(b.Algorithm, 255)),
		Commutative: b.Flags&shm.CollCommutative != 0, InPlace: b.Flags&shm.CollInPlace != 0, Layout: m.layout,
	}
	if v := &st.vectors; b.Vectors == 2 {
		p.Counts, p.Displs = v[0], v[1]
	} else {
		p.SCounts, p.SDispls, p.RCounts, p.RDispls = v[0], v[1], v[2], v[3]
	}
	plan, err := coll.NewPlan(p)
	if err != nil {
		return shm.StatusInvalid, 0 // the application's mistake
	}
	if st.op != coll.User && reduces(b.Kind) {
		if coll.Valid(st.op, st.typ) != nil || st.typ.Size() != p.Elem {
			return shm.StatusUnsupported, 0
		}
	}
	in, out := plan.Extents()
	if uint64(in) > b.InBytes || uint64(out) > b.OutBytes {
		return shm.StatusInvalid, 0
	}
	if uint64(plan.Scratch()) > b.ScratchBytes {
		return shm.StatusNoMemory, uint64(plan.Scratch())
	}
	st.plan = plan
	return shm.StatusOK, 0
}

func reduces(kind uint8) bool {
	switch kind {
	case shm.CollReduce, shm.CollAllreduce, shm.CollScan, shm.CollReduceScatter:
		return true
	}
	return false
}
