package core

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/match"
)

// comm is a communicator as one application knows it.
type comm struct {
	context uint32
	ranks   []uint32 // world ranks in communicator order
	me      int
	layout  *coll.Layout
	seq     uint32 // collectives started on it; part of their messages' tags
}

// collective is one that is under way. Its schedule is run round by round:
// the sends and receives of a round together, then its local steps (DESIGN
// §5, Collectives). It needs nothing of the application meanwhile, but for
// user-defined operations.
type collective struct {
	owner   owner
	comm    *comm
	seq     uint32
	plan    *coll.Plan
	mem     [3]link.Ref // by coll.Buf
	op      coll.Op
	typ     coll.Type
	round   int
	steps   []coll.Step
	local   int // next local step of the round
	pending int // sends and receives not finished
	posting bool
	calling bool // the application runs a user operation
	failed  shm.Status
}

func (c *Core) addWorld(s *session) {
	w := &comm{ranks: make([]uint32, len(c.cfg.PodOf)), me: int(s.endpoint.rank)}
	for i := range w.ranks {
		w.ranks[i] = uint32(i)
	}
	c.setLayout(w)
	s.comms[0] = w
}

func (c *Core) setLayout(m *comm) {
	pods := make([]int32, len(m.ranks))
	for i, r := range m.ranks {
		pods[i] = c.cfg.PodOf[r]
	}
	// The only error is a number of ranks that no job can have.
	m.layout, _ = coll.NewLayout(pods)
}

// submitComm makes a communicator known.
func (c *Core) submitComm(s *session, d *shm.Descriptor) error {
	ref, err := s.memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return err
	}
	n := ref.Len / 4
	if ref.Len%4 != 0 || n == 0 || n > uint64(len(c.cfg.PodOf)) || d.Context == 0 || d.Context >= 1<<31 {
		return fmt.Errorf("communicator %d of %d bytes of ranks", d.Context, ref.Len)
	}
	if s.comms[d.Context] != nil || len(s.comms) >= commLimit {
		return fmt.Errorf("communicator %d exists, or there are %d of them", d.Context, len(s.comms))
	}
	m := &comm{context: d.Context, ranks: make([]uint32, n), me: -1}
	list := append([]byte(nil), c.ports.Bytes(ref)...)
	seen := make(map[uint32]bool, n)
	for i := range m.ranks {
		r := binary.LittleEndian.Uint32(list[4*i:])
		if int(r) >= len(c.cfg.PodOf) || seen[r] {
			return fmt.Errorf("communicator %d: rank %d is unknown or named twice", d.Context, r)
		}
		seen[r] = true
		m.ranks[i] = r
		if r == s.endpoint.rank {
			m.me = i
		}
	}
	if m.me < 0 {
		return fmt.Errorf("communicator %d: rank %d is no member", d.Context, s.endpoint.rank)
	}
	if err := s.take(d.Req, requestPlain, 0); err != nil {
		return err
	}
	c.setLayout(m)
	s.comms[d.Context] = m
	c.finish(s.id, d.Req, shm.StatusOK)
	return nil
}

// commLimit bounds the communicators of one application.
const commLimit = 4096

// collVectors is how many arrays of a number a rank a collective has at most.
const collVectors = 4

// submitColl starts a collective (L§5.4).
func (c *Core) submitColl(s *session, d *shm.Descriptor) error {
	block, err := s.memory(d.Class, d.Addr(), d.Len())
	if err != nil {
		return err
	}
	if most := uint64(shm.CollBlockBytes + 8*collVectors*len(c.cfg.PodOf)); block.Len > most {
		return fmt.Errorf("collective block of %d bytes, want at most %d", block.Len, most)
	}
	raw := append([]byte(nil), c.ports.Bytes(block)...) // one private copy, judged below
	var b shm.CollBlock
	if err := b.Decode(raw); err != nil {
		return err
	}
	m := s.comms[b.Context]
	if m == nil {
		return fmt.Errorf("no communicator has the number %d", b.Context)
	}
	st := collective{owner: owner{session: s.id, req: d.Req}, comm: m, op: coll.Op(b.Op), typ: coll.Type(b.Type)}
	status, need, err := c.planColl(s, &st, &b, raw[shm.CollBlockBytes:])
	if err != nil {
		return err
	}
	if status != shm.StatusOK {
		if err := s.take(d.Req, requestPlain, 0); err != nil {
			return err
		}
		done := shm.Descriptor{Op: shm.OpDone, Req: d.Req, Status: status}
		done.SetBody(0, need, 0, 0)
		c.complete(s.id, &done)
		return nil
	}
	p, id := c.colls.alloc()
	if err := s.take(d.Req, requestColl, id); err != nil {
		c.colls.release(id)
		return err
	}
	m.seq++
	st.seq = m.seq
	*p = st
	_, out := st.plan.Extents()
	c.stats.Collective.add(uint64(out))
	c.hold(s.id)
	c.startRound(id, p)
	return nil
}

// planColl checks the parameters against the memory that they name. Parameters
// that an honest program can get wrong are a status, not an error.
func (c *Core) planColl(s *session, st *collective, b *shm.CollBlock, vectors []byte) (status shm.Status, need uint64, err error) {
	m := st.comm
	p := coll.Params{
		Kind: coll.Kind(b.Kind), Rank: m.me, Size: len(m.ranks), Root: int(b.Root),
		Count: int(min(b.Count, 1<<62)), Elem: int(min(b.Elem, 1<<31)), Algorithm: coll.Algorithm(min(b.Algorithm, 255)),
		Commutative: b.Flags&shm.CollCommutative != 0, InPlace: b.Flags&shm.CollInPlace != 0, Layout: m.layout,
	}
	if err := setVectors(&p, b, vectors); err != nil {
		return 0, 0, err
	}
	plan, err := coll.NewPlan(p)
	if err != nil {
		return shm.StatusInvalid, 0, nil //nolint:nilerr // the application's mistake, told by status
	}
	if coll.Op(b.Op) != coll.User && reduces(b.Kind) {
		if coll.Valid(st.op, st.typ) != nil || st.typ.Size() != p.Elem {
			return shm.StatusUnsupported, 0, nil
		}
	}
	in, out := plan.Extents()
	if uint64(in) > b.InBytes || uint64(out) > b.OutBytes {
		return shm.StatusInvalid, 0, nil
	}
	if uint64(plan.Scratch()) > b.ScratchBytes {
		return shm.StatusNoMemory, uint64(plan.Scratch()), nil
	}
	for i, r := range [3][2]uint64{{b.In, b.InBytes}, {b.Out, b.OutBytes}, {b.Scratch, b.ScratchBytes}} {
		if r[1] == 0 {
			continue
		}
		if st.mem[i], err = s.memory(shm.ClassArena, r[0], r[1]); err != nil {
			return 0, 0, err
		}
	}
	st.plan = plan
	return shm.StatusOK, 0, nil
}

func reduces(kind uint8) bool {
	switch kind {
	case shm.CollReduce, shm.CollAllreduce, shm.CollScan, shm.CollReduceScatter:
		return true
	}
	return false
}

// setVectors decodes the arrays of the vector kinds.
func setVectors(p *coll.Params, b *shm.CollBlock, raw []byte) error {
	if uint64(len(raw)) != uint64(b.Vectors)*uint64(p.Size)*8 {
		return fmt.Errorf("collective block with %d bytes of vectors, want %d of %d numbers", len(raw), b.Vectors, p.Size)
	}
	var v [collVectors][]int64
	for i := range v[:b.Vectors] {
		v[i] = make([]int64, p.Size)
		for j := range v[i] {
			v[i][j] = int64(binary.LittleEndian.Uint64(raw[8*(i*p.Size+j):]))
		}
	}
	if b.Vectors == 2 {
		p.Counts, p.Displs = v[0], v[1]
	} else {
		p.SCounts, p.SDispls, p.RCounts, p.RDispls = v[0], v[1], v[2], v[3]
	}
	return nil
}

// startRound starts rounds until one has to wait for messages.
func (c *Core) startRound(id uint64, st *collective) {
	for st.round < st.plan.Rounds() {
		st.steps = st.plan.Round(st.round, st.steps[:0])
		st.local = 0
		// A step may finish while the round is being posted: the guard keeps
		// it from running the local steps too early.
		st.posting = true
		for i := range st.steps {
			c.startStep(id, st, &st.steps[i])
		}
		st.posting = false
		if st.pending > 0 || !c.runLocal(id, st) {
			return
		}
		st.round++
	}
	c.endColl(id, shm.StatusOK)
}

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
			owner: o, src: s.endpoint.rank, dst: st.comm.ranks[x.Peer], context: st.comm.context,
			tag: st.tag(x.Tag), total: uint64(x.Len), payload: st.at(x.Src, x.SrcOff, x.Len), class: shm.ClassArena, coll: true,
		})
	case coll.Recv:
		st.pending++
		r, rid := c.recvs.alloc()
		r.owner, r.endpoint, r.coll, r.class = o, s.endpoint, true, shm.ClassArena
		r.buf, r.capacity = st.at(x.Dst, x.DstOff, x.Len), uint64(x.Len)
		c.startRecv(r, rid, match.Pattern{Context: st.comm.context, Source: st.comm.ranks[x.Peer], Tag: st.tag(x.Tag)})
	}
}

// collStepDone counts a finished message of a collective.
func (c *Core) collStepDone(id uint64, status shm.Status) {
	st := c.colls.get(id)
	if st == nil {
		return
	}
	st.pending--
	if status != shm.StatusOK && st.failed == 0 {
		st.failed = status
	}
	if st.pending > 0 || st.posting {
		return
	}
	if st.failed != 0 {
		c.endColl(id, st.failed)
		return
	}
	if c.runLocal(id, st) {
		st.round++
		c.startRound(id, st)
	}
}

// runLocal does the local steps of the round in order; false: it waits for the
// application to run a user operation.
func (c *Core) runLocal(id uint64, st *collective) bool {
	for ; st.local < len(st.steps); st.local++ {
		x := &st.steps[st.local]
		switch x.Op {
		case coll.Copy:
			copy(c.ports.Bytes(st.at(x.Dst, x.DstOff, x.Len)), c.ports.Bytes(st.at(x.Src, x.SrcOff, x.Len)))
		case coll.Fold:
			if st.op == coll.User {
				c.callUser(st, x)
				return false
			}
			dst, src := c.ports.Bytes(st.at(x.Dst, x.DstOff, x.Len)), c.ports.Bytes(st.at(x.Src, x.SrcOff, x.Len))
			if err := coll.Apply(st.op, st.typ, dst, src); err != nil {
				st.failed = shm.StatusUnsupported
			}
		}
	}
	return true
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
	if int(d.Req) >= len(s.requests) || s.requests[d.Req].kind != requestColl {
		return nil // ended meanwhile
	}
	id := s.requests[d.Req].id
	st := c.colls.get(id)
	if st == nil || !st.calling {
		return fmt.Errorf("no operation of request %d was asked for", d.Req)
	}
	st.calling = false
	st.local++
	if c.runLocal(id, st) {
		st.round++
		c.startRound(id, st)
	}
	return nil
}

// endColl completes a collective. Messages of it that are still under way find
// it gone.
func (c *Core) endColl(id uint64, status shm.Status) {
	st := c.colls.get(id)
	if st == nil {
		return
	}
	o, pending := st.owner, st.pending
	if status == shm.StatusOK {
		status = st.failed
	}
	c.colls.release(id)
	if pending > 0 {
		c.dropSteps(o.session, id)
	}
	c.finish(o.session, o.req, status)
	c.unhold(o.session)
}

// dropSteps ends the messages of a collective that ends early.
func (c *Core) dropSteps(s SessionID, id uint64) {
	c.recvs.each(func(rid uint64, r *recv) {
		if r.owner.coll == id {
			if !r.matched {
				r.endpoint.colls.Cancel(r.posted)
			}
			c.endRecv(rid, r, shm.StatusAborted)
		}
	})
	c.sends.each(func(sid uint64, st *send) {
		if st.owner.coll == id {
			c.endSend(sid, st, shm.StatusAborted)
		}
	})
	_ = s
}
