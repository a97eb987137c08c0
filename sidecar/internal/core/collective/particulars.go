package collective

import (
	"fmt"
	"math/bits"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// particulars are what a message of a collective says of it beside its signature, so
// that both sides of a disagreement can be told; nothing is decided by them (P§5.1).
//
//	bits 0-3 operation, 15: the program's own   4-7 type   8 known
//	bits 9-13 exponent and 14-30 mantissa of the size in bytes, rounded down;
//	of a barrier, of the fenced window's number without its low 12 bits
type particulars uint32

const (
	particularsKnown particulars = 1 << 8
	mantissaBits                 = 17
	userOperation                = 15
	announcedBits                = 24 // of them, that fit an announcement: a shorter mantissa
)

// agreedSize is how many bytes the ranks of a collective agree on.
func agreedSize(b *shm.CollBlock, vectors *[collVectors][]int64) uint64 {
	switch coll.Kind(b.Kind) {
	case coll.Barrier, coll.Gatherv, coll.Scatterv, coll.Alltoallv:
		return 0 // ranks need not agree on it
	}
	if len(vectors[0]) == 0 {
		return b.Count * b.Elem
	}
	size := uint64(0)
	for _, n := range vectors[0] {
		size += uint64(n) * b.Elem
	}
	return size
}

func particularsOf(b *shm.CollBlock, size uint64) particulars {
	if coll.Kind(b.Kind) == coll.Barrier {
		size = uint64(b.Root >> rootBits)
	}
	x := particularsKnown | withSize(size, mantissaBits)
	if reduces(b.Kind) {
		x |= particulars(min(b.Op, userOperation)) | particulars(b.Type&15)<<4
	}
	return x
}

// withSize is a size, of which width bits and their place are kept.
func withSize(size uint64, width int) particulars {
	shift := max(bits.Len64(size)-width, 0)
	if shift > 31 {
		return 0x1f<<9 | particulars(1<<width-1)<<14 // more than any memory
	}
	return particulars(shift)<<9 | particulars(size>>shift)<<14
}

// particularsIn are those that come with a message.
func particularsIn(i ranks.Immediate) particulars { return particulars(i.Above()) }

func (x particulars) known() bool  { return x&particularsKnown != 0 }
func (x particulars) size() uint64 { return uint64(x>>14&(1<<mantissaBits-1)) << (x >> 9 & 31) }

// width is how many bits of its size a message has; 0: all of them.
func (x particulars) width() int {
	if x>>9&31 == 0 {
		return 0
	}
	return bits.Len32(uint32(x >> 14 & (1<<mantissaBits - 1))) // the highest one is set
}

func (x particulars) op() coll.Op {
	if op := coll.Op(x & 15); op != userOperation {
		return op
	}
	return coll.User
}

// announced is what fits the announcement of a rendezvous.
func (x particulars) announced() uint32 {
	return uint32(x&0x1ff | withSize(x.size(), mantissaBits-(31-announcedBits)))
}

// about is a size, and of a reduction how it is combined.
func (x particulars) about(kind coll.Kind) string {
	if x.width() > 0 {
		return "about " + memory.Text(x.size()) + x.how(kind)
	}
	return memory.Text(x.size()) + x.how(kind)
}

func (x particulars) how(kind coll.Kind) string {
	if !reduces(uint8(kind)) {
		return ""
	}
	return fmt.Sprintf(" (%v, %v)", coll.Type(x>>4&15), x.op())
}
