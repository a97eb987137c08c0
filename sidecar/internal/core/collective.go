package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
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

// collective is one that is under way. Its schedule is run round by round:
// the sends and receives of a round together, then its local steps (DESIGN
// §5, Collectives). It needs nothing of the application meanwhile, but for
// user-defined operations.
type collective struct {
	owner    owner
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
	local    int       // next local step of the round
	done     uint64    // bytes of it that are done
	pending  int       // sends and receives not finished
	open     []stepRef // of the round, those that have a state of their own
	posting  bool
	queued   bool // its local steps wait for their turn
	calling  bool // the application runs a user operation
	failed   shm.Status
	vectors  [collVectors][]int64 // counts and displacements, as the plan has them
	reading  *reading             // they are not here yet
	cost     int64                // charged to its application
}

// stepRef names a send or receive of a round. It may have ended.
type stepRef struct {
	id   uint64
	send bool
}

func (c *Core) addWorld(s *session) {
	c.world.refs++
	s.comms[0] = &comm{group: c.world, me: int(s.endpoint.rank)}
}

// submitComm makes a communicator known: of the ranks that it lists, or of those
// of another communicator.
func (c *Core) submitComm(s *session, d *shm.Descriptor) error {
	if d.Context == 0 || d.Context >= 1<<31 || s.comms[d.Context] != nil || len(s.comms) >= commLimit {
		return fmt.Errorf("communicator %d exists, or cannot, or there are %d of them", d.Context, len(s.comms))
	}
	g, err := c.namedGroup(s, d)
	if errors.Is(err, errGroups) { // an honest program may come to it
		if err := s.take(d.Req, requestPlain, 0); err != nil {
			return err
		}
		c.finish(s.id, d.Req, shm.StatusNoMemory)
		return nil
	}
	if err != nil {
		return fmt.Errorf("communicator %d: %w", d.Context, err)
	}
	m := &comm{context: d.Context, group: g, me: g.place(s.endpoint.rank)}
	if m.me < 0 {
		err = fmt.Errorf("communicator %d: rank %d is no member", d.Context, s.endpoint.rank)
	} else {
		err = s.take(d.Req, requestPlain, 0)
	}
	if err != nil {
		c.dropGroup(g)
		return err
	}
	s.comms[d.Context] = m
	c.finish(s.id, d.Req, shm.StatusOK)
	return nil
}

// namedGroup is the group that a descriptor names.
func (c *Core) namedGroup(s *session, d *shm.Descriptor) (*group, error) {
	if d.Class == shm.ClassNone {
		if d.Aux() > math.MaxUint32 || s.comms[uint32(d.Aux())] == nil {
			return nil, fmt.Errorf("ranks of communicator %d, which does not exist", d.Aux())
		}
		g := s.comms[uint32(d.Aux())].group
		g.refs++
		return g, nil
	}
	ref, err := s.memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return nil, err
	}
	n := ref.Len / 4
	if ref.Len%4 != 0 || n == 0 || n > uint64(len(c.cfg.PodOf)) {
		return nil, fmt.Errorf("%d bytes of ranks", ref.Len)
	}
	c.effort += ref.Len
	c.list = slices.Grow(c.list[:0], int(n))[:n] // one private copy, judged by takeGroup
	raw := c.ports.Bytes(ref)
	for i := range c.list {
		c.list[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return c.takeGroup(c.list)
}

// commLimit bounds the communicators of one application.
const commLimit = 4096

// submitColl starts a collective (L§5.4).
func (c *Core) submitColl(s *session, d *shm.Descriptor) error {
	block, err := s.memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return err
	}
	if most := uint64(shm.CollBlockBytes + 8*collVectors*len(c.cfg.PodOf)); block.Len > most {
		return fmt.Errorf("collective block of %d bytes, want at most %d", block.Len, most)
	}
	var head [shm.CollBlockBytes]byte
	n := copy(head[:], c.ports.Bytes(block)) // a private copy, judged below
	var b shm.CollBlock
	if err := b.Decode(head[:n]); err != nil {
		return err
	}
	m := s.comms[b.Context]
	if m == nil {
		return fmt.Errorf("no communicator has the number %d", b.Context)
	}
	if n := block.Len - shm.CollBlockBytes; n != uint64(b.Vectors)*uint64(m.size)*8 {
		return fmt.Errorf("collective block with %d bytes of vectors, want %d of %d numbers", n, b.Vectors, m.size)
	}
	st := collective{owner: owner{session: s.id, req: d.Req}, comm: m, kind: coll.Kind(b.Kind), op: coll.Op(b.Op), typ: coll.Type(b.Type)}
	if err := st.setMemory(s, &b); err != nil {
		return err
	}
	st.cost = memory.CollCost + 8*int64(b.Vectors)*int64(m.size)
	if err := s.charge(st.cost); err != nil {
		return err
	}
	p, id := c.colls.Alloc()
	if err := s.take(d.Req, requestColl, id); err != nil {
		c.colls.Release(id)
		return err
	}
	*p = st
	c.hold(s.id)
	if b.Vectors == 0 {
		c.beginColl(s, id, p, &b)
		return nil
	}
	c.takeVectors(s, id, p, b, block.Slice(shm.CollBlockBytes, block.Len-shm.CollBlockBytes))
	return nil
}

// setMemory finds the buffers of a collective.
func (st *collective) setMemory(s *session, b *shm.CollBlock) (err error) {
	for i, r := range [3][2]uint64{{b.In, b.InBytes}, {b.Out, b.OutBytes}, {b.Scratch, b.ScratchBytes}} {
		if r[1] == 0 {
			continue
		}
		if st.mem[i], err = s.memory(shm.ClassArena, r[0], r[1]); err != nil {
			return err
		}
	}
	return nil
}

// beginColl starts a collective whose parameters are all here.
func (c *Core) beginColl(s *session, id uint64, st *collective, b *shm.CollBlock) {
	if status, need := c.planColl(st, b); status != shm.StatusOK {
		c.refuseColl(id, st, status, need)
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
	s.endpoint.begun.add(st)
	c.compareEarly(s.endpoint, m)
	_, out := st.plan.Extents()
	st.bytes = uint64(out)
	c.stats.Collective.add(uint64(out))
	c.ports.Note(NoteColl, c.cfg.Self, s.endpoint.rank, uint64(st.kind), uint64(out), uint64(st.seq))
	c.startRound(id, st)
}

// refuseColl ends a collective that cannot begin, and says how much scratch memory
// it needs where that is why.
func (c *Core) refuseColl(id uint64, st *collective, status shm.Status, need uint64) {
	o := st.owner
	c.spareVectors(st)
	c.sessions[o.session].refund(st.cost)
	c.colls.Release(id)
	d := shm.Descriptor{Op: shm.OpDone, Req: o.req, Status: status}
	d.SetBody(0, need, 0, 0)
	c.complete(o.session, &d)
	c.unhold(o.session)
}

// planColl checks the parameters against the memory that they name. Parameters
// that an honest program can get wrong are a status.
func (c *Core) planColl(st *collective, b *shm.CollBlock) (status shm.Status, need uint64) {
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
