package dsa

import (
	"errors"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

// pageBytes is the size of a page.
var pageBytes = os.Getpagesize()

// resident remembers which pages were made resident, to save a system call for each copy. It
// forgets by collision, and does not notice that memory has been given back to the kernel: then
// the device reports a fault.
type resident struct {
	write    bool
	bytes    int // made resident since the caller set it to 0
	granules [residentGranules]granule
}

// granule is a part of memory that is aligned to its size, with a bit for each page.
type granule struct {
	number uintptr // its address divided by its size
	pages  [granulePages / 64]uint64
}

// Sizes of resident: with pages of 4 KiB, a granule is 2 MiB, and all are 512 MiB.
const (
	granulePages     = 512
	residentGranules = 256
)

// add makes memory resident, unless it is remembered.
func (r *resident) add(mem []byte) error {
	return r.each(mem, func(g *granule, number uintptr, from, to int) error {
		if g.number != number {
			*g = granule{number: number}
		}
		first, last := g.missing(from, to)
		if first == last {
			return nil
		}
		start := number*granulePages + uintptr(first)
		err := populate(start*uintptr(pageBytes), uintptr((last-first)*pageBytes), r.write)
		if err != nil && !errors.Is(err, unix.EINVAL) { // an older kernel, or a mapping that has no pages
			return err
		}
		r.bytes += (last - first) * pageBytes
		g.mark(first, last)
		return nil
	})
}

// forget removes what is remembered of memory, by granules.
func (r *resident) forget(mem []byte) {
	_ = r.each(mem, func(g *granule, _ uintptr, _, _ int) error { // it returns no error
		*g = granule{}
		return nil
	})
}

// each calls f for each granule that mem is in, with the range of pages in it.
func (r *resident) each(mem []byte, f func(g *granule, number uintptr, from, to int) error) error {
	page := uintptr(pageBytes)
	from := addressOf(mem) / page
	end := (addressOf(mem) + uintptr(len(mem)) + page - 1) / page
	for from < end {
		number := from / granulePages
		to := min(end, (number+1)*granulePages)
		base := number * granulePages
		if err := f(&r.granules[number%residentGranules], number, int(from-base), int(to-base)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// missing returns a range in which all pages of [from, to) are that have no bit; it is empty if
// there are none.
func (g *granule) missing(from, to int) (first, last int) {
	for w := from / 64; w <= (to-1)/64; w++ {
		absent := mask(w, from, to) &^ g.pages[w]
		if absent == 0 {
			continue
		}
		if last == 0 {
			first = w*64 + bits.TrailingZeros64(absent)
		}
		last = w*64 + bits.Len64(absent)
	}
	return first, last
}

// mark sets the bits of [from, to).
func (g *granule) mark(from, to int) {
	for w := from / 64; w <= (to-1)/64; w++ {
		g.pages[w] |= mask(w, from, to)
	}
}

// mask returns the bits of [from, to) that are in word w.
func mask(w, from, to int) uint64 {
	from, to = max(from-w*64, 0), min(to-w*64, 64)
	return ^uint64(0) << from & (^uint64(0) >> (64 - to))
}
