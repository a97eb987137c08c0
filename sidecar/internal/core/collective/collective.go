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

// comm is a communicator of one application.
type comm struct {
	context uint32
	*group
	me  int    // index of the application's rank in the group
	seq uint32 // collectives begun on it; part of their messages' tags

	identity localSignature // identity of the last collective
	active   int            // collectives that have begun and not ended
	base     uint32         // all collectives with lower numbers have ended
	broken   bool           // a collective of it has failed here: messages for it may stay parked
}

// call is a collective that has begun and not ended. Its schedule runs round by round:
// first the sends and receives of a round together, then its copies and folds. The
// application takes part only if the operation is its own.
type call struct {
	member   *member
	req      uint32
	comm     *comm
	seq      uint32
	plan     *coll.Plan
	mem      [3]link.Ref // memory by coll.Buf
	kind     coll.Kind
	identity localSignature
	bytes    uint64 // bytes of the result on this rank
	window   uint32 // fenced by a barrier; 0: none
	op       coll.Op
	typ      coll.Type
	round    int
	steps    []coll.Step
	local    int         // next local step of the round
	done     uint64      // bytes of that step
	pending  int         // sends and receives not finished
	open     []MessageID // messages of the round that have not ended at once
	posting  bool        // the round's messages are being started: Done must not end the round
	queued   bool        // in Room.locals
	calling  bool        // until Reduced
	away     bool        // until Folded
	failed   shm.Status
	vectors  [collVectors][]int64 // counts and displacements, as the plan has them
	reading  *reading             // nil: they are complete
	cost     int64                // bytes charged to the session (memory.CollCost)
}

// SubmitComm creates a communicator, of the ranks that the descriptor lists or of those of
// another communicator.
func (r *Room) SubmitComm(s ranks.SessionID, d *shm.Descriptor) error {
	b := r.members[s]
	switch {
	case d.Context == 0 || d.Context >= 1<<31:
		return fmt.Errorf("communicator number %d, want 1 to %d", d.Context, 1<<31-1)
	case b.comms[d.Context] != nil:
		return fmt.Errorf("communicator %d exists already", d.Context)
	}
	var g *group
	err := errFull
	if len(b.comms) < commLimit {
		g, err = r.namedGroup(b, d)
	}
	if errors.Is(err, errFull) || errors.Is(err, errGroups) { // no fault of the program: it gets a status
		if err := b.session.Claim(d.Req, ranks.RequestPlain, 0); err != nil {
			return err
		}
		r.sessions.Finish(s, d.Req, shm.StatusNoMemory)
		return nil
	}
	if err != nil {
		return fmt.Errorf("communicator %d: %w", d.Context, err)
	}
	m := &comm{context: d.Context, group: g, me: g.index(b.session.Rank())}
	if m.me < 0 {
		err = fmt.Errorf("communicator %d: rank %d is not in its list", d.Context, b.session.Rank())
	} else {
		err = b.session.Claim(d.Req, ranks.RequestPlain, 0)
	}
	if err != nil {
		r.releaseGroup(g)
		return err
	}
	if b.session.Charge(memory.CommCost) != nil {
		r.releaseGroup(g)
		r.sessions.Finish(s, d.Req, shm.StatusNoMemory)
		return nil
	}
	b.comms[d.Context] = m
	r.sessions.Finish(s, d.Req, shm.StatusOK)
	return nil
}

// namedGroup returns the group of a descriptor, with a reference for the caller.
func (r *Room) namedGroup(b *member, d *shm.Descriptor) (*group, error) {
	if d.Class == shm.ClassNone {
		if d.Aux() > math.MaxUint32 || b.comms[uint32(d.Aux())] == nil {
			return nil, fmt.Errorf("copy of communicator %d, which does not exist", d.Aux())
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
		return nil, fmt.Errorf("rank list of %d bytes, want 4 for each of 1 to %d ranks", ref.Len, len(r.cfg.PodOf))
	}
	r.effort += ref.Len
	r.list = slices.Grow(r.list[:0], int(n))[:n] // a private copy, which acquireGroup checks
	raw := r.ports.Bytes(ref)
	for i := range r.list {
		r.list[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return r.acquireGroup(r.list, b.lists)
}

// commLimit bounds the communicators of one application. One more ends with StatusNoMemory, and so
// does one whose memory.CommCost the application may not use.
const commLimit = 4096

// errFull is the error of a session that has commLimit communicators.
var errFull = fmt.Errorf("more than %d communicators", commLimit)

// Submit starts a collective (LAYOUT.md §5.4).
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
	n := copy(head[:], r.ports.Bytes(block)) // a private copy: the application can change its own
	var b shm.CollBlock
	if err := b.Decode(head[:n]); err != nil {
		return err
	}
	m := x.comms[b.Context]
	if m == nil {
		return fmt.Errorf("communicator %d does not exist", b.Context)
	}
	if n := block.Len - shm.CollBlockBytes; n != uint64(b.Vectors)*uint64(m.size)*8 {
		return fmt.Errorf("collective block with %d bytes of vectors, want %d vectors of %d numbers", n, b.Vectors, m.size)
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
		r.begin(id, p, &b)
		return nil
	}
	r.readVectors(id, p, b, block.Slice(shm.CollBlockBytes, block.Len-shm.CollBlockBytes))
	return nil
}

// setMemory sets the buffers of a collective.
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

// begin starts a collective whose parameters and vectors are complete.
func (r *Room) begin(id uint64, st *call, b *shm.CollBlock) {
	if status, need := st.makePlan(b, r.table); status != shm.StatusOK {
		r.reject(id, st, status, need)
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
	r.comparePods(st.member, m)
	_, out := st.plan.Extents()
	st.bytes = uint64(out)
	r.stats.Begun++
	r.stats.By[st.kind][st.plan.Algorithm()]++
	r.stats.Bytes += uint64(out)
	r.ports.Note(ranks.NoteColl, r.cfg.Self, st.member.session.Rank(), uint64(st.kind), uint64(out), uint64(st.seq))
	r.startRound(id, st)
}

// reject completes a collective that cannot begin. If scratch memory is missing, need is
// its size in bytes.
func (r *Room) reject(id uint64, st *call, status shm.Status, need uint64) {
	s, req, cost := st.member.session, st.req, st.cost
	r.releaseVectors(st)
	r.calls.Release(id)
	r.complete(s, req, status, need, 0, cost)
}

// complete publishes the completion of a collective and releases its charge. need is the
// scratch memory that was missing, departed 1 more than the rank that has left; else 0.
func (r *Room) complete(s *ranks.Session, req uint32, status shm.Status, need, departed uint64, cost int64) {
	s.Refund(cost)
	d := shm.Descriptor{Op: shm.OpDone, Req: req, Status: status}
	d.SetBody(0, need, departed, 0)
	r.sessions.Complete(s.ID(), &d)
	r.sessions.Unhold(s.ID())
}

// makePlan checks the parameters against the memory that they name. A fault that a correct
// client can pass on from its program is a status, and not an error that ends the session.
func (st *call) makePlan(b *shm.CollBlock, t *coll.Table) (status shm.Status, need uint64) {
	m := st.comm
	p := coll.Params{
		Kind: st.kind, Rank: m.me, Size: m.size, Root: int(b.Root),
		Count: int(min(b.Count, 1<<62)), Elem: int(min(b.Elem, 1<<31)), Algorithm: coll.Algorithm(min(b.Algorithm, 255)),
		Commutative: b.Flags&shm.CollCommutative != 0, InPlace: b.Flags&shm.CollInPlace != 0, Layout: m.layout, Table: t,
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

// reduces reports whether a kind combines elements.
func reduces(kind uint8) bool {
	switch kind {
	case shm.CollReduce, shm.CollAllreduce, shm.CollScan, shm.CollReduceScatter:
		return true
	}
	return false
}
