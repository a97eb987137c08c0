package shm

import (
	"encoding/binary"
	"fmt"
)

// CollBlock is the parameter block of an OpColl (§5.4), stored by the client
// in its slab or arena: the fixed part below, then for the vector kinds four
// arrays of Ranks int64 (send counts, send displacements, receive counts,
// receive displacements; elements). Offsets in bytes:
//
//	 0 kind u8   1 type u8   2 op u8   3 flags u8   4 root u32
//	 8 context u32   12 vectors u32 (0, 2 or 4)   16 count u64   24 elem u64
//	32 in u64   40 in bytes u64   48 out u64   56 out bytes u64
//	64 scratch u64   72 scratch bytes u64   80 algorithm u32   84 reserved u32
//
// in, out and scratch are arena offsets; every range that a schedule touches
// is checked against the byte counts, and those against the arena.
type CollBlock struct {
	Kind, Type, Op, Flags      uint8
	Root, Context, Vectors     uint32
	Count, Elem                uint64
	In, InBytes, Out, OutBytes uint64
	Scratch, ScratchBytes      uint64
	Algorithm                  uint32
}

// Collective kinds.
const (
	CollBarrier uint8 = 1 + iota
	CollBcast
	CollReduce
	CollAllreduce
	CollScan
	CollReduceScatter
	CollGather
	CollGatherv
	CollScatter
	CollScatterv
	CollAllgather
	CollAllgatherv
	CollAlltoall
	CollAlltoallv
)

// Flags of a CollBlock.
const (
	CollCommutative uint8 = 1 << iota
	CollInPlace
)

// CollBlockBytes is the size of the fixed part.
const CollBlockBytes = 88

// Encode writes the fixed part to b, which holds at least CollBlockBytes.
func (c *CollBlock) Encode(b []byte) {
	_ = b[CollBlockBytes-1]
	b[0], b[1], b[2], b[3] = c.Kind, c.Type, c.Op, c.Flags
	le := binary.LittleEndian
	le.PutUint32(b[4:], c.Root)
	le.PutUint32(b[8:], c.Context)
	le.PutUint32(b[12:], c.Vectors)
	for i, v := range []uint64{c.Count, c.Elem, c.In, c.InBytes, c.Out, c.OutBytes, c.Scratch, c.ScratchBytes} {
		le.PutUint64(b[16+8*i:], v)
	}
	le.PutUint32(b[80:], c.Algorithm)
	le.PutUint32(b[84:], 0)
}

// Decode reads the fixed part from b. b must be a private copy: the client can
// write the original at any time.
func (c *CollBlock) Decode(b []byte) error {
	if len(b) < CollBlockBytes {
		return fmt.Errorf("collective block of %d bytes, need %d", len(b), CollBlockBytes)
	}
	c.Kind, c.Type, c.Op, c.Flags = b[0], b[1], b[2], b[3]
	le := binary.LittleEndian
	c.Root, c.Context, c.Vectors = le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])
	for i, p := range []*uint64{&c.Count, &c.Elem, &c.In, &c.InBytes, &c.Out, &c.OutBytes, &c.Scratch, &c.ScratchBytes} {
		*p = le.Uint64(b[16+8*i:])
	}
	c.Algorithm = le.Uint32(b[80:])
	if c.Vectors != 0 && c.Vectors != 2 && c.Vectors != 4 {
		return fmt.Errorf("collective block with %d vectors, want 0, 2 or 4", c.Vectors)
	}
	return nil
}
