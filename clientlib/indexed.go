package outrigger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Indexed selects the elements of a slice that form a message: blocks of Counts[i] elements from
// element Displs[i] on (MPI_Type_indexed), in the order of the list. If Counts is nil, each block has
// one element. Blocks may be empty and in any order; those of a receive must not share elements. The
// lists must not change before the message has been sent or received. The library copies the elements
// once into memory that it shares with the sidecar, and once out of it.
type Indexed struct{ Counts, Displs []int }

// Len returns the number of elements.
func (x Indexed) Len() int {
	if x.Counts == nil {
		return len(x.Displs)
	}
	return sum(x.Counts)
}

// count returns the length of block i.
func (x Indexed) count(i int) int {
	if x.Counts == nil {
		return 1
	}
	return x.Counts[i]
}

// check checks the blocks against the length of a slice, and their sum against most, which bounds a
// message that has elements more than once.
func (x Indexed) check(have, most int) error {
	if x.Counts != nil && len(x.Counts) != len(x.Displs) {
		return fmt.Errorf("%w: %d counts and %d displacements; give one of each for a block", ErrInvalid, len(x.Counts), len(x.Displs))
	}
	total := 0
	for i, at := range x.Displs {
		n := x.count(i)
		if at < 0 || n < 0 || n > have || at > have-n {
			return fmt.Errorf("%w: block %d is %d elements from %d on, in a slice of %d", ErrInvalid, i, n, at, have)
		}
		if n > most-total {
			return fmt.Errorf("%w: the first %d blocks have more than %d elements, which is the most that the arena, or the slice, holds; send them as several messages", ErrInvalid, i+1, most)
		}
		total += n
	}
	return nil
}

// roomFor returns the length of the longest message from a slice: blocks that share elements may be
// longer than the slice, but not longer than the arena.
func roomFor[T Number](c *Comm, buf []T) int {
	return max(len(buf), len(c.session.arenaMem)/sizeOf[T]())
}

// apart returns an error if blocks share elements (MPI 4.1, section 5.1.11: the result of a receive
// would depend on their order). A list in ascending order is checked in one pass without sorting.
// Preconditions: check has passed.
func (x Indexed) apart() error {
	order := make([]int, 0, len(x.Displs))
	for i := range x.Displs {
		if x.count(i) > 0 {
			order = append(order, i)
		}
	}
	byOffset := func(a, b int) int { return cmp.Compare(x.Displs[a], x.Displs[b]) }
	if !slices.IsSortedFunc(order, byOffset) {
		slices.SortFunc(order, byOffset)
	}
	for k := 1; k < len(order); k++ {
		a, b := order[k-1], order[k]
		if x.Displs[a]+x.count(a) > x.Displs[b] {
			return fmt.Errorf("%w: blocks %d and %d share element %d; a receive writes each element once", ErrInvalid, a, b, x.Displs[b])
		}
	}
	return nil
}

// SendIndexed sends the elements of buf that x selects, and returns when they may be changed again.
func SendIndexed[T Number](ctx context.Context, c *Comm, buf []T, x Indexed, dst, tag int) error {
	if err := cmp.Or(x.check(len(buf), roomFor(c, buf)), c.session.live(bytesOf(buf))); err != nil {
		return c.session.fail("send", c, dst, tag, 0, err)
	}
	if dst == NullRank {
		return nil
	}
	return sendPacked(ctx, c, x.Len(), func(b []T) {
		for i, at := range x.Displs {
			n := x.count(i)
			copy(b[:n], buf[at:])
			b = b[n:]
		}
	}, dst, tag)
}

// IrecvIndexed starts a receive into the elements of buf that x selects. Wait writes them. A shorter
// message fills the first of them; a longer one is an ErrTruncated.
func IrecvIndexed[T Number](c *Comm, buf []T, x Indexed, src, tag int) (*PackedRequest, error) {
	err := cmp.Or(x.check(len(buf), roomFor(c, buf)), c.session.live(bytesOf(buf)))
	if err == nil {
		err = x.apart()
	}
	if err != nil {
		return nil, c.session.fail("recv", c, src, tag, 0, err)
	}
	return irecvPacked(c, x.Len(), sizeOf[T](), func(b []T) {
		for i := 0; len(b) > 0; i++ {
			at := x.Displs[i]
			b = b[copy(buf[at:at+x.count(i)], b):]
		}
	}, src, tag)
}

// RecvIndexed receives a message into the elements of buf that x selects.
func RecvIndexed[T Number](ctx context.Context, c *Comm, buf []T, x Indexed, src, tag int) (Status, error) {
	r, err := IrecvIndexed(c, buf, x, src, tag)
	if err != nil {
		return Status{}, err
	}
	return r.await(ctx)
}
