package reuse

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// index finds entries by address: chains in buckets. It hashes blocks of pages, and the
// pages of a block have neighbouring buckets: if each page had an unrelated bucket, each
// lookup would miss the CPU's cache.
type index struct {
	heads []uint32
	shift uint   // reduces a block's hash to as many bits as there are blocks of buckets
	block uint   // bits of a page's number within its block
	mask  uint64 // mask of these bits
}

const (
	pageBits  = 12
	blockBits = 6
)

// chainMax bounds the entries that one lookup visits: of buffers that begin on one page, or
// that a program has chosen for their hash. Further ones are not added.
const chainMax = 32

func newIndex(buckets int) index {
	all := uint(bits.Len(uint(buckets - 1)))
	block := min(blockBits, all-1) // at least two blocks: the shift stays below 64
	return index{heads: make([]uint32, buckets), shift: 64 - (all - block), block: block, mask: 1<<block - 1}
}

// bucket hashes the block multiplicatively: it takes the upper bits of the product with
// 2^64 divided by the golden ratio (Knuth, volume 3, section 6.4; the papers' hash is of
// the same kind).
func (x *index) bucket(r link.Region, off uint64) uint64 {
	page := off >> pageBits
	// The masks avoid the checks for shifts that Go defines beyond 63.
	block := (page>>(x.block&63) ^ uint64(r)<<40) * 0x9e3779b97f4a7c15 >> (x.shift & 63)
	return block<<(x.block&63) | page&x.mask
}

// find returns the entry of a buffer, or 0 if it is not known.
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

// full reports whether the bucket of a buffer has no room, and returns an entry of it for
// which over returns true, or 0.
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

// add adds an entry to its bucket. Preconditions: the bucket is not full.
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
