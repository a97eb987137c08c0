package outrigger

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// collCall describes a collective before it is submitted.
type collCall struct {
	what    string
	kind    uint8
	typ     uint8
	op      Op
	root    int
	window  uint32 // number of the window that a barrier fences
	count   int    // number of elements of a block or of the whole buffer
	elem    int
	in, out []byte
	vectors [][]int // the counts and displacements of a vector collective: 0, 2 or 4 arrays
	inPlace bool
}

// startColl submits a collective.
func (c *Comm) startColl(x *collCall) (Request, error) {
	s := c.session
	if err := s.enterCall(context.Background()); err != nil {
		return Request{}, s.fail(x.what, c, AnySource, AnyTag, max(len(x.in), len(x.out)), err)
	}
	defer s.mu.Unlock()
	r, err := c.submitColl(x)
	if err != nil {
		return Request{}, s.fail(x.what, c, AnySource, AnyTag, max(len(x.in), len(x.out)), err)
	}
	return r, nil
}

func (c *Comm) submitColl(x *collCall) (Request, error) {
	s := c.session
	o, r, err := s.begin(x.what, c, AnySource, AnyTag, max(len(x.in), len(x.out)))
	if err != nil {
		return Request{}, err
	}
	o.collective = true
	n, err := c.prepare(o, x)
	if err != nil {
		s.drop(r.id, o)
		return Request{}, err
	}
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}
	d.SetBody(uint64(o.loan.off), uint64(n), 0, 0)
	return s.submitOp(r, o, &d)
}

// check returns an error for arguments that are invalid on any rank.
func (c *Comm) check(x *collCall) error {
	if err := c.checkPeer(x.root); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := cmp.Or(c.session.live(x.in), c.session.live(x.out)); err != nil {
		return err
	}
	if err := x.checkOp(); err != nil {
		return err
	}
	if x.op.call != nil && x.op.size != x.elem {
		return fmt.Errorf("%w: an operation on elements of %d bytes, and operands with %d", ErrInvalid, x.op.size, x.elem)
	}
	for _, v := range x.vectors {
		for i, n := range v {
			if n < 0 {
				return fmt.Errorf("%w: count or displacement %d of rank %d", ErrInvalid, n, i)
			}
		}
	}
	return nil
}

// checkOp returns an error if a reduction has no operation, or one that combines nothing.
func (x *collCall) checkOp() error {
	switch x.kind {
	case shm.CollReduce, shm.CollAllreduce, shm.CollScan, shm.CollReduceScatter:
	default:
		return nil
	}
	switch x.op.code {
	case Op{}.code:
		return fmt.Errorf("%w: no operation: give it Sum, Max or another one of the package, or an OpFunc", ErrInvalid)
	case shm.ReduceReplace, shm.ReduceNoOp:
		return fmt.Errorf("%w: Replace and NoOp are for Accumulate and FetchOp, and combine nothing", ErrInvalid)
	}
	return nil
}

func align(n int) int { return (n + arenaAlign - 1) &^ (arenaAlign - 1) }

// block returns the description of the operation without the offsets of its memory.
func (c *Comm) block(x *collCall) shm.CollBlock {
	b := shm.CollBlock{
		Kind: x.kind, Type: x.typ, Op: x.op.code, Root: uint32(x.root), Context: c.context, Vectors: uint32(len(x.vectors)),
		Count: uint64(x.count), Elem: uint64(x.elem), InBytes: uint64(len(x.in)), OutBytes: uint64(len(x.out)),
	}
	if x.window != 0 {
		b.Root = x.window
	}
	if x.inPlace {
		b.Flags |= shm.CollInPlace
		b.InBytes = b.OutBytes
	}
	if x.op.commutative {
		b.Flags |= shm.CollCommutative
	}
	return b
}

// scratchFor returns the most scratch memory that the engine may request. It cannot overflow,
// because the arena bounds the sizes from which it is computed.
func (c *Comm) scratchFor(b *shm.CollBlock, x *collCall) uint64 {
	if len(x.vectors) == 0 {
		return shm.CollScratch[int](b, c.rank, c.Size(), nil)
	}
	return shm.CollScratch(b, c.rank, c.Size(), x.vectors[0])
}

// prepare allocates the block of a collective and fills it in: parameters, vectors, copies of
// operands that are not in the arena, and scratch. It returns the length of the first two.
func (c *Comm) prepare(o *op, x *collCall) (int, error) {
	if err := c.check(x); err != nil {
		return 0, err
	}
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
	b := c.block(x)
	scratch := need
	b.ScratchBytes = c.scratchFor(&b, x)
	need += int(b.ScratchBytes)
	area, size, err := s.arena.borrow(need)
	if err != nil {
		return 0, err
	}
	o.loan, o.reduce = loan{off: area, size: size}, x.op
	o.lent = inShared || outShared
	if inShared {
		o.uses[0] = span{inOff, len(x.in)}
	}
	if outShared {
		o.uses[1] = span{outOff, len(x.out)}
	}
	if !outShared {
		outOff += area
		if len(x.out) > 0 {
			o.loan.out, o.loan.outOff = x.out, outOff
			copy(s.arenaMem[outOff:], x.out) // parts of out that the collective does not write keep their values
		}
	}
	switch {
	case x.inPlace:
		inOff = outOff
	case !inShared:
		inOff += area
		copy(s.arenaMem[inOff:], x.in)
	}
	b.In, b.Out, b.Scratch = uint64(inOff), uint64(outOff), uint64(area+scratch)
	mem := s.arenaMem[area : area+block]
	b.Encode(mem)
	encodeVectors(mem[shm.CollBlockBytes:], x.vectors)
	return block, nil
}

func encodeVectors(mem []byte, vectors [][]int) {
	for _, v := range vectors {
		for _, n := range v {
			binary.LittleEndian.PutUint64(mem, uint64(n))
			mem = mem[8:]
		}
	}
}

// reduce runs a user-defined operation for the engine (LAYOUT §6).
func (s *Session) reduce(d *shm.Descriptor) error {
	if call := s.ops.list[d.Req].reduce.call; call != nil {
		dst := s.arenaMem[d.Addr() : d.Addr()+d.Len()]
		src := s.arenaMem[d.Aux() : d.Aux()+d.Len()]
		if d.Flags&shm.FlagSwap == 0 {
			call(dst, src)
		} else {
			tmp := slices.Clone(src)
			call(tmp, dst)
			copy(dst, tmp)
		}
	}
	return s.push(&shm.Descriptor{Op: shm.OpReduced, Req: d.Req})
}

// collWait finishes a blocking collective. A collective cannot be cancelled: if ctx ends first, its
// memory stays in use until it completes.
func (r Request) collWait(ctx context.Context, err error) error {
	if err == nil {
		_, err = r.awaitWhole(ctx)
	}
	return err
}
