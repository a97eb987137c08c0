package ioat

import (
	"cmp"
	"slices"
)

// span is a range of the device's addresses.
type span struct{ at, n uint64 }

// spans are free ranges, sorted, and not adjacent.
type spans []span

// guard is the lowest address that is used: 0 would look like none.
const guard = 1 << 20

// take returns the first free range of n bytes.
func (s *spans) take(n uint64) (at uint64, ok bool) {
	for i := range *s {
		f := &(*s)[i]
		if f.n < n {
			continue
		}
		at = f.at
		if f.at, f.n = f.at+n, f.n-n; f.n == 0 {
			*s = slices.Delete(*s, i, i+1)
		}
		return at, true
	}
	return 0, false
}

// give makes a range free. It ignores what is below guard, and the last page of all addresses,
// behind which addresses start again at 0.
func (s *spans) give(at, n uint64) {
	if n == 0 || at+n < at { // all addresses, or up to the last
		n = -at - page
	}
	if at < guard {
		if at+n <= guard {
			return
		}
		at, n = guard, n-(guard-at)
	}
	i, _ := slices.BinarySearchFunc(*s, at, func(f span, at uint64) int { return cmp.Compare(f.at, at) })
	*s = slices.Insert(*s, i, span{at, n})
	if i+1 < len(*s) && at+n == (*s)[i+1].at {
		(*s)[i].n += (*s)[i+1].n
		*s = slices.Delete(*s, i+1, i+2)
	}
	if i > 0 && (*s)[i-1].at+(*s)[i-1].n == at {
		(*s)[i-1].n += (*s)[i].n
		*s = slices.Delete(*s, i, i+1)
	}
}
