package outrigger

import (
	"context"
	"encoding/binary"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// collective is what this side keeps of a collective under way: one block of
// the arena with the parameters, copies of operands that are not arena memory,
// and scratch.
type collective struct {
	area, size int
	out        []byte // private memory that gets the result
	outOff     int    // the result in the arena
	op         Op
}

// call describes a collective before it is submitted.
type collCall struct {
	what    string
	kind    uint8
	typ     uint8
	op      Op
	root    int
	count   int // elements, of a block or of the whole
	elem    int
	in, out []byte
	vectors [][]int // 0, 2 or 4 arrays
	inPlace bool
}

// scratchFor bounds what the engine's schedules need (DESIGN §5): a few times
// the larger operand.
func scratchFor(in, out int) int { return 4*max(in, out) + 4096 }

// startColl submits a collective.
func (c *Comm) startColl(x *collCall) (Request, error) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := c.submitColl(x)
	if err != nil {
		return Request{}, s.fail(x.what, c, AnySource, AnyTag, max(len(x.in), len(x.out)), err)
	}
	return r, nil
}

func (c *Comm) submitColl(x *collCall) (Request, error) {
	s := c.session
	o, id, err := s.begin(x.what, c, AnySource, AnyTag, max(len(x.in), len(x.out)))
	if err != nil {
		return Request{}, err
	}
	st, blockBytes, err := c.prepare(x)
	if err != nil {
		s.ops.release(id)
		return Request{}, err
	}
	o.coll = st
	s.d = shm.Descriptor{Op: shm.OpColl, Req: id, Class: shm.ClassArena}
	s.d.SetBody(uint64(st.area), uint64(blockBytes), 0, 0)
	return Request{s, id, o.gen}, s.push()
}

func align(n int) int { return (n + arenaAlign - 1) &^ (arenaAlign - 1) }

// prepare lays the block out: parameters, vectors, copies of operands, scratch.
func (c *Comm) prepare(x *collCall) (*collective, int, error) {
	s := c.session
	inOff, inShared := s.inArena(x.in)
	outOff, outShared := s.inArena(x.out)
	block := shm.CollBlockBytes
	for _, v := range x.vectors {
		block += 8 * max(len(v), c.Size())
	}
	need := align(block)
	if !inShared && !x.inPlace {
		inOff = need
		need += align(len(x.in))
	}
	if !outShared {
		outOff = need
		need += align(len(x.out))
	}
	scratch := need
	need += scratchFor(len(x.in), len(x.out))
	area, size, err := s.arena.borrow(need)
	if err != nil {
		return nil, 0, err
	}
	st := &collective{area: area, size: size, op: x.op}
	if !outShared {
		outOff += area
		if len(x.out) > 0 {
			st.out, st.outOff = x.out, outOff
			copy(s.arenaMem[outOff:], x.out) // parts that are not written stay as they were
		}
	}
	switch {
	case x.inPlace:
		inOff = outOff
	case !inShared:
		inOff += area
		copy(s.arenaMem[inOff:], x.in)
	}
	b := shm.CollBlock{
		Kind: x.kind, Type: x.typ, Op: x.op.code, Root: uint32(x.root), Context: c.context, Vectors: uint32(len(x.vectors)),
		Count: uint64(x.count), Elem: uint64(x.elem), In: uint64(inOff), InBytes: uint64(len(x.in)), Out: uint64(outOff), OutBytes: uint64(len(x.out)),
		Scratch: uint64(area + scratch), ScratchBytes: uint64(size - scratch),
	}
	if x.inPlace {
		b.Flags |= shm.CollInPlace
		b.InBytes = b.OutBytes
	}
	if x.op.commutative {
		b.Flags |= shm.CollCommutative
	}
	mem := s.arenaMem[area : area+block]
	b.Encode(mem)
	encodeVectors(mem[shm.CollBlockBytes:], x.vectors)
	return st, block, nil
}

func encodeVectors(mem []byte, vectors [][]int) {
	for _, v := range vectors {
		for _, n := range v {
			binary.LittleEndian.PutUint64(mem, uint64(n))
			mem = mem[8:]
		}
	}
}

func (st *collective) copyOut(s *Session) {
	if st.out != nil {
		copy(st.out, s.arenaMem[st.outOff:])
	}
}

func (st *collective) release(s *Session) { s.arena.giveBack(st.area, st.size) }

// reduce runs a user-defined operation for the engine (LAYOUT §6).
func (s *Session) reduce(id uint32, o *op, d *shm.Descriptor) error {
	if o.coll != nil && o.coll.op.call != nil {
		dst := s.arenaMem[d.Addr() : d.Addr()+d.Len()]
		src := s.arenaMem[d.Aux() : d.Aux()+d.Len()]
		if d.Flags&shm.FlagSwap == 0 {
			o.coll.op.call(dst, src)
		} else {
			tmp := append([]byte(nil), src...)
			o.coll.op.call(tmp, dst)
			copy(dst, tmp)
		}
	}
	s.d = shm.Descriptor{Op: shm.OpReduced, Req: id}
	return s.push()
}

// wait finishes a blocking collective. A collective that has begun cannot be
// taken back: when ctx ends first, its memory stays in use until it ends.
func (r Request) collWait(ctx context.Context, err error) error {
	if err != nil {
		return err
	}
	if _, err = r.Wait(ctx); err != nil && ctx.Err() != nil {
		r.s.mu.Lock()
		o := r.state()
		r.s.mu.Unlock()
		if o != nil {
			r.s.abandon(o)
		}
	}
	return err
}
