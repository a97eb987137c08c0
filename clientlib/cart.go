package outrigger

import (
	"context"
	"fmt"
	"slices"
)

// Cart is a communicator whose ranks form a grid (MPI-4 §8.5) in row-major order: the last
// coordinate changes fastest.
type Cart struct {
	*Comm
	dims     []int
	periodic []bool
}

// Dims replaces the zeros of dims so that the product of all is n. The new numbers are as close to
// each other as possible, larger ones first (MPI_Dims_create).
func Dims(n int, dims []int) ([]int, error) {
	out, rest, open := slices.Clone(dims), n, 0
	for _, d := range dims {
		switch {
		case d < 0:
			return nil, fmt.Errorf("%w: a grid of %v", ErrInvalid, dims)
		case d == 0:
			open++
		case rest%d != 0:
			return nil, fmt.Errorf("%w: %d ranks do not fill a grid of %v", ErrInvalid, n, dims)
		default:
			rest /= d
		}
	}
	if n < 1 || open == 0 && rest != 1 {
		return nil, fmt.Errorf("%w: %d ranks do not fill a grid of %v", ErrInvalid, n, dims)
	}
	free := make([]int, open)
	for i := range free {
		free[i] = 1
	}
	for _, p := range factors(rest) { // largest first, each to the smallest side
		*smallest(free) *= p
	}
	slices.SortFunc(free, func(a, b int) int { return b - a })
	for i := range out {
		if out[i] == 0 {
			out[i], free = free[0], free[1:]
		}
	}
	return out, nil
}

func smallest(list []int) *int {
	at := 0
	for i := range list {
		if list[i] < list[at] {
			at = i
		}
	}
	return &list[at]
}

// factors returns the prime factors of n, largest first.
func factors(n int) (list []int) {
	for p := 2; p*p <= n; p++ {
		for ; n%p == 0; n /= p {
			list = append(list, p)
		}
	}
	if n > 1 {
		list = append(list, n)
	}
	slices.Reverse(list)
	return list
}

// Cart returns a communicator of the first ranks as a grid (MPI_Cart_create without reordering). All
// ranks call it with the same dims and periodic; ranks beyond the grid get nil. periodic is whether
// the ends of each dimension are neighbours; nil: of none.
func (c *Comm) Cart(ctx context.Context, dims []int, periodic []bool) (*Cart, error) {
	fail := func(err error) (*Cart, error) { return nil, c.session.fail("cart", c, AnySource, AnyTag, 0, err) }
	n := 1
	for _, d := range dims {
		if d < 1 || n > c.Size()/d {
			return fail(fmt.Errorf("%w: a grid of %v in a communicator of %d ranks", ErrInvalid, dims, c.Size()))
		}
		n *= d
	}
	if periodic == nil {
		periodic = make([]bool, len(dims))
	}
	if len(periodic) != len(dims) {
		return fail(fmt.Errorf("%w: %d dimensions, of which %d are periodic or not", ErrInvalid, len(dims), len(periodic)))
	}
	if err := c.sameOnAll(ctx, "dims", dims); err != nil {
		return nil, c.during("cart", err)
	}
	circles := make([]int, len(periodic))
	for i, p := range periodic {
		if p {
			circles[i] = 1
		}
	}
	if err := c.sameOnAll(ctx, "periodic (1: yes)", circles); err != nil {
		return nil, c.during("cart", err)
	}
	color := -1
	if c.Rank() < n {
		color = 0
	}
	in, err := c.Split(ctx, color, c.Rank())
	if err != nil || in == nil {
		return nil, c.during("cart", err)
	}
	return &Cart{in, slices.Clone(dims), slices.Clone(periodic)}, nil
}

// Coords returns the coordinates of a rank.
func (c *Cart) Coords(rank int) []int {
	out := make([]int, len(c.dims))
	for i := len(c.dims) - 1; i >= 0; i-- {
		out[i] = rank % c.dims[i]
		rank /= c.dims[i]
	}
	return out
}

// RankAt returns the rank at coordinates, which wrap around in periodic dimensions, or NullRank if
// there is none.
func (c *Cart) RankAt(coords ...int) int {
	rank := 0
	for i, x := range coords {
		if c.periodic[i] {
			x = (x%c.dims[i] + c.dims[i]) % c.dims[i]
		}
		if x < 0 || x >= c.dims[i] {
			return NullRank
		}
		rank = rank*c.dims[i] + x
	}
	return rank
}

// Shift returns the ranks from which this rank receives and to which it sends if all ranks send by
// steps along a dimension (MPI_Cart_shift). Beyond the edge it is NullRank.
func (c *Cart) Shift(dimension, steps int) (src, dst int) {
	at := c.Coords(c.Rank())
	at[dimension] -= steps
	src = c.RankAt(at...)
	at[dimension] += 2 * steps
	return src, c.RankAt(at...)
}

// Include returns a communicator of the listed ranks, in that order (MPI_Comm_create with
// MPI_Group_incl). All ranks of c call it with the same list; ranks that are not in it get nil.
func (c *Comm) Include(ctx context.Context, ranks []int) (*Comm, error) {
	color, key := -1, 0
	seen := make(map[int]bool, len(ranks))
	for i, r := range ranks {
		switch {
		case r < 0 || r >= c.Size():
			return nil, c.session.fail("include", c, AnySource, AnyTag, 0, fmt.Errorf("%w: rank %d in the list, of a communicator of %d", ErrInvalid, r, c.Size()))
		case seen[r]:
			return nil, c.session.fail("include", c, AnySource, AnyTag, 0, fmt.Errorf("%w: rank %d is in the list twice", ErrInvalid, r))
		}
		seen[r] = true
		if r == c.Rank() {
			color, key = 0, i
		}
	}
	if err := c.sameOnAll(ctx, "ranks", ranks); err != nil {
		return nil, c.during("include", err)
	}
	in, err := c.Split(ctx, color, key)
	return in, c.during("include", err)
}

// Exscan combines in of the ranks before this one into out. On rank 0, out stays as it is
// (MPI_Exscan). It is a Scan and one message to the next rank.
func Exscan[T Number](ctx context.Context, c *Comm, in, out []T, op Op) error {
	if err := c.want("exscan", len(out), len(in), "out"); err != nil {
		return err
	}
	upTo := make([]T, len(in))
	if err := Scan(ctx, c, in, upTo, op); err != nil {
		return err
	}
	// The message is an alltoallv in which a rank sends to the next one only: a plain message could
	// match a receive of the application.
	to, from, none := make([]int, c.Size()), make([]int, c.Size()), make([]int, c.Size())
	if c.Rank()+1 < c.Size() {
		to[c.Rank()+1] = len(in)
	}
	if c.Rank() > 0 {
		from[c.Rank()-1] = len(in)
	}
	return Alltoallv(ctx, c, upTo, to, none, out[:len(in)], from, none)
}
