package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

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

	signature signature // of the last of them; 0: none was
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
	kind    coll.Kind
	sign    signature
	bytes   uint64 // that it puts out here
	op      coll.Op
	typ     coll.Type
	round   int
	steps   []coll.Step
	local   int       // next local step of the round
	done    uint64    // bytes of it that are done
	pending int       // sends and receives not finished
	open    []stepRef // of the round, those that have a state of their own
	posting bool
	queued  bool // its local steps wait for their turn
	calling bool // the application runs a user operation
	failed  shm.Status
	vectors [collVectors][]int64 // counts and displacements, as the plan has them
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
	var head [shm.CollBlockBytes]byte
	raw := c.ports.Bytes(block)
	n := copy(head[:], raw) // a private copy, judged below
	var b shm.CollBlock
	if err := b.Decode(head[:n]); err != nil {
		return err
	}
	c.effort += block.Len
	m := s.comms[b.Context]
	if m == nil {
		return fmt.Errorf("no communicator has the number %d", b.Context)
	}
	st := collective{owner: owner{session: s.id, req: d.Req}, comm: m, kind: coll.Kind(b.Kind), op: coll.Op(b.Op), typ: coll.Type(b.Type)}
	status, need, err := c.planColl(s, &st, &b, raw[shm.CollBlockBytes:])
	if err != nil {
		return err
	}
	if status != shm.StatusOK {
		c.spareVectors(&st)
		if err := s.take(d.Req, requestPlain, 0); err != nil {
			return err
		}
		done := shm.Descriptor{Op: shm.OpDone, Req: d.Req, Status: status}
		done.SetBody(0, need, 0, 0)
		c.complete(s.id, &done)
		return nil
	}
	st.sign = signatureOf(&b, &st.vectors)
	p, id := c.colls.alloc()
	if err := s.take(d.Req, requestColl, id); err != nil {
		c.colls.release(id)
		return err
	}
	m.seq++
	st.seq, m.signature = m.seq, st.sign
	c.compareEarly(s.endpoint, m)
	*p = st
	_, out := st.plan.Extents()
	p.bytes = uint64(out)
	c.stats.Collective.add(uint64(out))
	c.ports.Note(NoteColl, c.cfg.Self, s.endpoint.rank, uint64(st.kind), uint64(out), uint64(st.seq))
	c.hold(s.id)
	c.startRound(id, p)
	return nil
}

// planColl checks the parameters against the memory that they name. Parameters
// that an honest program can get wrong are a status, not an error.
func (c *Core) planColl(s *session, st *collective, b *shm.CollBlock, vectors []byte) (status shm.Status, need uint64, err error) {
	m := st.comm
	p := coll.Params{
		Kind: coll.Kind(b.Kind), Rank: m.me, Size: m.size, Root: int(b.Root),
		Count: int(min(b.Count, 1<<62)), Elem: int(min(b.Elem, 1<<31)), Algorithm: coll.Algorithm(min(b.Algorithm, 255)),
		Commutative: b.Flags&shm.CollCommutative != 0, InPlace: b.Flags&shm.CollInPlace != 0, Layout: m.layout,
	}
	if err := c.setVectors(st, &p, b, vectors); err != nil {
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

// setVectors decodes the arrays of the vector kinds, straight from the
// application's memory: each number is read once.
func (c *Core) setVectors(st *collective, p *coll.Params, b *shm.CollBlock, raw []byte) error {
	if uint64(len(raw)) != uint64(b.Vectors)*uint64(p.Size)*8 {
		return fmt.Errorf("collective block with %d bytes of vectors, want %d of %d numbers", len(raw), b.Vectors, p.Size)
	}
	v := &st.vectors
	for i := range v[:b.Vectors] {
		v[i] = c.takeVector(p.Size)
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

// vectorsKept bounds the vectors that wait for the next collective.
const vectorsKept = 4 * collVectors

// takeVector returns a vector of n numbers that are to be written.
func (c *Core) takeVector(n int) []int64 {
	for k := len(c.vectors); k > 0; k = len(c.vectors) {
		v := c.vectors[k-1]
		c.vectors = c.vectors[:k-1]
		if cap(v) >= n {
			return v[:n]
		}
	}
	return make([]int64, n)
}

// spareVectors takes the vectors of a collective that has ended back.
func (c *Core) spareVectors(st *collective) {
	for _, v := range st.vectors {
		if v != nil && len(c.vectors) < vectorsKept {
			c.vectors = append(c.vectors, v)
		}
	}
	st.vectors = [collVectors][]int64{}
}
