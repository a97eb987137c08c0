package reuse

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// index finds entries by address: chains in buckets. It has as many buckets as the
// papers' table at its largest, and uses one for an entry: with 2^20
// heads for a thousand buffers every lookup would be a miss of the processor's
// cache. It grows by one bucket at a time (linear hashing: Litwin 1980), so that no
// insertion takes long.
type index struct {
	heads []uint32
	shift uint   // of a hash to as many bits as there are buckets
	round uint64 // buckets at the beginning of this round of splits, a power of two
	split uint64 // of them, those that were split
	used  uint64 // entries
}

// indexFirst is the buckets of an empty index.
const indexFirst = 256

func newIndex(buckets int) index {
	return index{heads: make([]uint32, buckets), shift: uint(64 - bits.Len(uint(buckets-1))), round: uint64(min(buckets, indexFirst))}
}

// hash is multiplicative: bits of the product with 2^64 divided by the golden ratio
// (Knuth, volume 3, section 6.4; the papers' is of the same kind). Multiplied twice,
// so that its lower bits are as good as its upper ones: neighbours lie at multiples
// of pages.
func (x *index) hash(r link.Region, off uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15
	h := (off ^ uint64(r)<<44) * golden
	return (h ^ h>>32) * golden >> (x.shift & 63)
}

// bucket is the present bucket of a hash: one bit more of it counts where a bucket
// was split. Without a branch, which nobody could predict.
func (x *index) bucket(hash uint64) uint64 {
	wasSplit := (hash&(x.round-1) - x.split) >> 63 // 1 or 0
	return hash & (x.round - 1 | x.round&-wasSplit)
}

// find looks a buffer up; 0: it is not known.
func (x *index) find(entries []entry, r link.Region, off uint64) uint32 {
	id := x.heads[x.bucket(x.hash(r, off))]
	for id != 0 {
		e := &entries[id]
		if e.off == off && e.region == r {
			return id
		}
		id = e.next
	}
	return 0
}

// conflicts reports whether another buffer would share a bucket of the papers'
// table with this one.
func (x *index) conflicts(entries []entry, r link.Region, off uint64) bool {
	h := x.hash(r, off)
	for id := x.heads[x.bucket(h)]; id != 0; id = entries[id].next {
		if x.hash(entries[id].region, entries[id].off) == h {
			return true
		}
	}
	return false
}

func (x *index) add(entries []entry, id uint32) {
	e := &entries[id]
	head := &x.heads[x.bucket(x.hash(e.region, e.off))]
	e.next = *head
	*head = id
	if x.used++; x.used > x.round+x.split && x.round < uint64(len(x.heads)) {
		x.grow(entries)
	}
}

// grow splits the next bucket into two.
func (x *index) grow(entries []entry) {
	from, upper := &x.heads[x.split], &x.heads[x.split+x.round]
	bit := x.round
	for id := *from; id != 0; {
		e := &entries[id]
		next := e.next
		if x.hash(e.region, e.off)&bit != 0 {
			*from = next
			e.next = *upper
			*upper = id
		} else {
			from = &e.next
		}
		id = next
	}
	if x.split++; x.split == x.round {
		x.round, x.split = 2*x.round, 0
	}
}

func (x *index) remove(entries []entry, id uint32) {
	e := &entries[id]
	at := &x.heads[x.bucket(x.hash(e.region, e.off))]
	for *at != id {
		at = &entries[*at].next
	}
	*at = e.next
	x.used--
}
