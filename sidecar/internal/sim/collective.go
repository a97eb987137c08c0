package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// collective is a collective of all ranks on numbers with a known result.
type collective struct {
	kind  uint8
	root  uint32
	count int    // numbers of a block
	salt  uint64 // the same on all ranks
	out   int    // arena offset of the result
}

// collectives are the kinds that run, with the numbers of input and output blocks for n
// ranks.
var collectives = []struct {
	kind    uint8
	in, out func(n int) int
}{
	{shm.CollBarrier, none, none},
	{shm.CollBcast, none, one},
	{shm.CollAllreduce, one, one},
	{shm.CollScan, one, one},
	{shm.CollAllgather, one, all},
	{shm.CollAlltoall, all, all},
}

func none(int) int  { return 0 }
func one(int) int   { return 1 }
func all(n int) int { return n }

// number returns input i of block b of rank r.
func (c *collective) number(r uint32, b, i int) uint64 {
	return c.salt*1_000_003 + uint64(r)*10_007 + uint64(b)*101 + uint64(i)
}

func (c *collective) blocks(ranks int) (in, out int) {
	for _, k := range collectives {
		if k.kind == c.kind {
			return k.in(ranks), k.out(ranks)
		}
	}
	panic("unknown collective")
}

// vectors returns the number of vectors of the call: half of the alltoalls have vectors of
// counts and displacements.
func (c *collective) vectors() int {
	if c.kind == shm.CollAlltoall && c.salt%2 == 1 {
		return 4
	}
	return 0
}

// putVectors writes counts and displacements of equal blocks, for the input and the output.
func (c *collective) putVectors(to []byte, ranks int) {
	for i := range ranks {
		for v := range 2 {
			binary.LittleEndian.PutUint64(to[8*(2*v*ranks+i):], uint64(c.count))
			binary.LittleEndian.PutUint64(to[8*((2*v+1)*ranks+i):], uint64(i*c.count))
		}
	}
}

func (c *collective) describe(a *app) shm.Descriptor {
	ranks := len(a.w.podOf)
	in, out := c.blocks(ranks)
	inBytes, outBytes := 8*c.count*in, 8*c.count*out
	b := shm.CollBlock{
		Kind: c.kind, Type: shm.TypeUint64, Op: shm.ReduceSum, Flags: shm.CollCommutative, Root: c.root,
		Count: uint64(c.count), Elem: 8, InBytes: uint64(inBytes), OutBytes: uint64(outBytes),
	}
	b.ScratchBytes = shm.CollScratch[int](&b, int(a.rank), ranks, nil)
	bytes := shm.CollBlockBytes + 8*c.vectors()*ranks
	block := a.alloc(bytes)
	if c.vectors() > 0 {
		b.Kind, b.Vectors, b.Count = shm.CollAlltoallv, 4, 0
		c.putVectors(a.arena[block+shm.CollBlockBytes:], ranks)
	}
	from := a.alloc(inBytes)
	c.out = a.alloc(outBytes)
	b.In, b.Out, b.Scratch = uint64(from), uint64(c.out), uint64(a.alloc(int(b.ScratchBytes)))
	for i := range in * c.count {
		binary.LittleEndian.PutUint64(a.arena[from+8*i:], c.number(a.rank, i/c.count, i%c.count))
	}
	if c.kind == shm.CollBcast && a.rank == c.root {
		for i := range c.count {
			binary.LittleEndian.PutUint64(a.arena[c.out+8*i:], c.number(a.rank, 0, i))
		}
	}
	b.Encode(a.arena[block:])
	d := shm.Descriptor{Op: shm.OpColl, Class: shm.ClassArena}
	d.SetBody(uint64(block), uint64(bytes), 0, 0)
	return d
}

func (c *collective) ended(a *app, d *shm.Descriptor) error {
	if d.Status != shm.StatusOK {
		return fmt.Errorf("collective %d ended with status %d, length %d", c.kind, d.Status, d.Len())
	}
	_, out := c.blocks(len(a.w.podOf))
	for i := range out * c.count {
		got := binary.LittleEndian.Uint64(a.arena[c.out+8*i:])
		if want := c.result(a, i/c.count, i%c.count); got != want {
			return fmt.Errorf("collective %d of %d numbers: number %d of block %d is %d, want %d", c.kind, c.count, i%c.count, i/c.count, got, want)
		}
	}
	return nil
}

// result returns number i of block b of this rank's output.
func (c *collective) result(a *app, b, i int) uint64 {
	switch c.kind {
	case shm.CollBcast:
		return c.number(c.root, 0, i)
	case shm.CollAllgather:
		return c.number(uint32(b), 0, i)
	case shm.CollAlltoall:
		return c.number(uint32(b), int(a.rank), i)
	}
	last := len(a.w.podOf) - 1 // allreduce
	if c.kind == shm.CollScan {
		last = int(a.rank)
	}
	sum := uint64(0)
	for r := range last + 1 {
		sum += c.number(uint32(r), 0, i)
	}
	return sum
}
