package collective

import (
	"fmt"
	"math/bits"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// detail is what a message of a collective carries in addition to its signature, so that
// the text of a dispute can describe both sides; it decides nothing (PROTOCOL.md §5.1).
//
//	bits 0-3 operation, 15: user-defined   4-7 type   8 known
//	bits 9-13 exponent and 14-30 mantissa of the size in bytes, rounded down;
//	of a barrier, of the fenced window's number without its low 12 bits
type detail uint32

const (
	detailKnown   detail = 1 << 8
	mantissaBits         = 17
	userOperation        = 15
	announcedBits        = 24 // bits of a detail that fit an announcement, which has a shorter mantissa
)

// agreedSize returns the bytes that the ranks of a collective agree on; 0: they need not.
func agreedSize(b *shm.CollBlock, vectors *[collVectors][]int64) uint64 {
	switch coll.Kind(b.Kind) {
	case coll.Barrier, coll.Gatherv, coll.Scatterv, coll.Alltoallv:
		return 0
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

// detailOf returns the detail of a collective.
func detailOf(b *shm.CollBlock, size uint64) detail {
	if coll.Kind(b.Kind) == coll.Barrier {
		size = uint64(b.Root >> rootBits)
	}
	x := detailKnown | withSize(size, mantissaBits)
	if reduces(b.Kind) {
		x |= detail(min(b.Op, userOperation)) | detail(b.Type&15)<<4
	}
	return x
}

// withSize encodes a size: its highest width bits as mantissa, and their shift as exponent.
func withSize(size uint64, width int) detail {
	shift := max(bits.Len64(size)-width, 0)
	if shift > 31 {
		return 0x1f<<9 | detail(1<<width-1)<<14 // more than any memory
	}
	return detail(shift)<<9 | detail(size>>shift)<<14
}

// detailIn returns the detail that a message carries.
func detailIn(i ranks.Immediate) detail { return detail(i.Above()) }

func (x detail) known() bool  { return x&detailKnown != 0 }
func (x detail) size() uint64 { return uint64(x>>14&(1<<mantissaBits-1)) << (x >> 9 & 31) }

// width returns how many bits of the size the message carries; 0: all of them.
func (x detail) width() int {
	if x>>9&31 == 0 {
		return 0
	}
	return bits.Len32(uint32(x >> 14 & (1<<mantissaBits - 1))) // the highest one is set
}

func (x detail) op() coll.Op {
	if op := coll.Op(x & 15); op != userOperation {
		return op
	}
	return coll.User
}

// announced returns the detail shortened for the announcement of a rendezvous.
func (x detail) announced() uint32 {
	return uint32(x&0x1ff | withSize(x.size(), mantissaBits-(31-announcedBits)))
}

// about returns the text of the size, and of type and operation if it is a reduction.
func (x detail) about(kind coll.Kind) string {
	if x.width() > 0 {
		return "about " + memory.Text(x.size()) + x.how(kind)
	}
	return memory.Text(x.size()) + x.how(kind)
}

// how returns the text of type and operation of a reduction; of other kinds "".
func (x detail) how(kind coll.Kind) string {
	if !reduces(uint8(kind)) {
		return ""
	}
	return fmt.Sprintf(" (%v, %v)", coll.Type(x>>4&15), x.op())
}
