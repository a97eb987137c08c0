package ranks

import (
	"fmt"
	"math"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Table holds the states of one kind of request. An entry never moves, so that pointers stay valid
// when the table grows. Entries are used again, up to 2^31 times, so that a steady state allocates
// nothing. An id has the index of an entry and a generation, so that the id of an ended request does
// not name another one.
type Table[T any] struct {
	chunks [][]slot[T]
	free   []uint32
	used   int // entries
}

type slot[T any] struct {
	gen  uint32 // odd: in use
	item T
}

const tableChunk = 256

// lastGen is the generation after which an entry is not used again: if its generations started
// again, a late id of a peer could name another request, or one that never existed.
const lastGen = math.MaxUint32 - 1

// Alloc returns a zeroed entry and its id, which is never 0.
func (t *Table[T]) Alloc() (*T, uint64) {
	if len(t.free) == 0 {
		base := uint32(len(t.chunks)) * tableChunk
		t.chunks = append(t.chunks, make([]slot[T], tableChunk))
		for i := uint32(tableChunk); i > 0; i-- {
			t.free = append(t.free, base+i-1)
		}
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.used++
	s := &t.chunks[i/tableChunk][i%tableChunk]
	s.gen++
	var zero T
	s.item = zero
	return &s.item, uint64(s.gen)<<32 | uint64(i)
}

// Len returns how many entries are in use.
func (t *Table[T]) Len() int { return t.used }

// Get returns the entry of an id, or nil if there is none.
func (t *Table[T]) Get(id uint64) *T {
	i := uint32(id)
	if int(i/tableChunk) >= len(t.chunks) {
		return nil
	}
	s := &t.chunks[i/tableChunk][i%tableChunk]
	if s.gen != uint32(id>>32) || s.gen&1 == 0 {
		return nil
	}
	return &s.item
}

// Issued reports whether there ever was an entry of that id. A peer that names an ended entry may be
// late; one that names an entry that never was breaks the protocol (P§6).
func (t *Table[T]) Issued(id uint64) bool {
	i, gen := uint32(id), uint32(id>>32)
	return int(i/tableChunk) < len(t.chunks) && gen&1 == 1 && gen <= t.chunks[i/tableChunk][i%tableChunk].gen
}

// Ended returns the error of a Get that found nothing: nil if the entry has ended, and a
// violation of the protocol if there never was one.
func (t *Table[T]) Ended(id uint64, what string) error {
	if t.Issued(id) {
		return nil
	}
	return fmt.Errorf("%w: %s a request that there never was", link.ErrProtocol, what)
}

// Release frees the entry of an id.
func (t *Table[T]) Release(id uint64) {
	i := uint32(id)
	s := &t.chunks[i/tableChunk][i%tableChunk]
	if s.gen != uint32(id>>32) {
		return
	}
	s.gen++
	t.used--
	if s.gen < lastGen {
		t.free = append(t.free, i)
	}
}

// Each calls f with each entry in use. f may release that entry.
func (t *Table[T]) Each(f func(id uint64, item *T)) {
	for c := range t.chunks {
		for i := range t.chunks[c] {
			if s := &t.chunks[c][i]; s.gen&1 == 1 {
				f(uint64(s.gen)<<32|uint64(c*tableChunk+i), &s.item)
			}
		}
	}
}

// Span calls f as Each does, for n entries from index first on, in use or not. It reports
// whether there are more.
func (t *Table[T]) Span(first, n uint32, f func(id uint64, item *T)) bool {
	all := uint32(len(t.chunks)) * tableChunk
	end := min(first+n, all)
	for i := first; i < end; i++ {
		if s := &t.chunks[i/tableChunk][i%tableChunk]; s.gen&1 == 1 {
			f(uint64(s.gen)<<32|uint64(i), &s.item)
		}
	}
	return end < all
}

// At returns the entry in use with index i, and its id. Matching queues store indices, which they
// remove before the entry is released.
func (t *Table[T]) At(i uint32) (*T, uint64) {
	s := &t.chunks[i/tableChunk][i%tableChunk]
	return &s.item, uint64(s.gen)<<32 | uint64(i)
}
