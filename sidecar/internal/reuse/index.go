package reuse

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// index finds entries by address: chains in buckets. Blocks of pages are hashed, and
// the pages of a block have neighbouring buckets: with every page somewhere else each
// lookup would miss the processor's cache.
type index struct {
	heads []uint32
	shift uint   // of a block's hash to as many bits as there are blocks of buckets
	block uint   // bits of a page's number within its block
	mask  uint64 // of the same
}

const (
	pageBits  = 12
	blockBits = 6
)

// chainMax bounds what one lookup walks through: buffers that begin on one page, or
// that somebody has chosen for their hash. Those beyond it are not known.
const chainMax = 32

func newIndex(buckets int) index {
	all := uint(bits.Len(uint(buckets - 1)))
	block := min(blockBits, all-1) // two blocks at least: the shift stays below 64
	return index{heads: make([]uint32, buckets), shift: 64 - (all - block), block: block, mask: 1<<block - 1}
}

// bucket is multiplicative in the block: the upper bits of the product with 2^64
// divided by the golden ratio (Knuth, volume 3, section 6.4; the papers' hash is of
// the same kind).
func (x *index) bucket(r link.Region, off uint64) uint64 {
	page := off >> pageBits
	// The masks spare the checks of shifts that Go defines beyond 63.
	block := (page>>(x.block&63) ^ uint64(r)<<40) * 0x9e3779b97f4a7c15 >> (x.shift & 63)
	return block<<(x.block&63) | page&x.mask
}

// find looks a buffer up; 0: it is not known.
func (x *index) find(entries []entry, r link.Region, off uint64) uint32 {
	id := x.heads[x.bucket(r, off)]
	for range chainMax {
		if id == 0 {
			break
		}
		e := &entries[id]
		if e.off == off && e.region == r {
			return id
		}
		id = e.next
	}
	return 0
}

// full reports whether no more buffers can be found in the bucket of this one, and an
// entry of it that is over, 0 for none.
func (x *index) full(entries []entry, r link.Region, off uint64, over func(*entry) bool) (full bool, id uint32) {
	n, old := 0, uint32(0)
	for id := x.heads[x.bucket(r, off)]; id != 0; id = entries[id].next {
		n++
		if old == 0 && over(&entries[id]) {
			old = id
		}
	}
	return n >= chainMax, old
}

// Preconditions: the entry's bucket is not full.
func (x *index) add(entries []entry, id uint32) {
	e := &entries[id]
	head := &x.heads[x.bucket(e.region, e.off)]
	e.next = *head
	*head = id
}

func (x *index) remove(entries []entry, id uint32) {
	e := &entries[id]
	at := &x.heads[x.bucket(e.region, e.off)]
	for *at != id {
		at = &entries[*at].next
	}
	*at = e.next
}
