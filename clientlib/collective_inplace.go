package outrigger

import (
	"context"
	"fmt"
)

// Collectives in place (MPI_IN_PLACE; MPI 4.1, section 6.2.3): one buffer has what a
// rank contributes and gets the result. They save the memory of the second one, and
// the copy from it where buf is from Alloc. Ranks may differ in it: one may call
// Gather where another calls GatherInPlace.
//
// Those that do not wait have no name of their own: Iallreduce and its like are in
// place where in and out begin at the same element, Igather, Iscatter and
// Iallgather where the small buffer is the rank's own block of the large one. Any
// other overlap of in and out is an error of the program. Alltoall has no in-place form:
// give it slices.Clone(buf) as in.

// AllreduceInPlace combines buf of every rank, element by element, into buf of every
// rank.
func AllreduceInPlace[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return Allreduce(ctx, c, buf, buf, op)
}

// ReduceInPlace combines buf of every rank, element by element, into buf of the root.
// Elsewhere buf stays as it is.
func ReduceInPlace[T Number](ctx context.Context, c *Comm, buf []T, op Op, root int) error {
	return Reduce(ctx, c, buf, buf, op, root)
}

// ScanInPlace combines buf of ranks 0 to this one into buf.
func ScanInPlace[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return Scan(ctx, c, buf, buf, op)
}

// ExscanInPlace combines buf of ranks 0 to the one before this into buf. On rank 0 it
// stays as it is.
func ExscanInPlace[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return Exscan(ctx, c, buf, buf, op)
}

// ReduceScatterInPlace combines buf of every rank and gives rank i its block, counts[i]
// elements, at the beginning of buf; what is behind it is undefined. Without counts
// each rank's block has len(buf)/Size elements.
func ReduceScatterInPlace[T Number](ctx context.Context, c *Comm, buf []T, counts []int, op Op) error {
	if counts != nil {
		return ReduceScatter(ctx, c, buf, buf, counts, op)
	}
	n, err := divided(c, "reduce-scatter", buf)
	if err != nil {
		return err
	}
	return ReduceScatter(ctx, c, buf, buf[:n], nil, op)
}

// GatherInPlace collects blocks of all ranks, in rank order, in buf of the root. There,
// buf has Size blocks, and the root's own one is in its place in it already;
// elsewhere buf is the rank's block.
func GatherInPlace[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	if c.rank != root {
		return Gather(ctx, c, buf, nil, root)
	}
	n, err := divided(c, "gather", buf)
	if err != nil {
		return err
	}
	return Gather(ctx, c, within(buf, c.rank*n, n), buf, root)
}

// ScatterInPlace sends block i of the root's buf to buf of rank i. At the root, buf has
// Size blocks and stays as it is; elsewhere it is the rank's block.
func ScatterInPlace[T Number](ctx context.Context, c *Comm, buf []T, root int) error {
	if c.rank != root {
		return Scatter(ctx, c, nil, buf, root)
	}
	n, err := divided(c, "scatter", buf)
	if err != nil {
		return err
	}
	return Scatter(ctx, c, buf, within(buf, c.rank*n, n), root)
}

// AllgatherInPlace gives every rank's block of buf to all: buf has Size blocks, of which
// a rank has written its own one, in its place.
func AllgatherInPlace[T Number](ctx context.Context, c *Comm, buf []T) error {
	n, err := divided(c, "allgather", buf)
	if err != nil {
		return err
	}
	return Allgather(ctx, c, within(buf, c.rank*n, n), buf)
}

// divided is the length of a rank's block of buf.
func divided[T Number](c *Comm, what string, buf []T) (int, error) {
	if len(buf)%c.Size() != 0 {
		return 0, c.session.fail(what, c, AnySource, AnyTag, len(buf)*sizeOf[T](), fmt.Errorf("%w: a buffer of %d elements in place, want a multiple of the %d ranks", ErrInvalid, len(buf), c.Size()))
	}
	return len(buf) / c.Size(), nil
}
