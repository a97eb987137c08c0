package outrigger

import (
	"context"
	"fmt"
)

// Collectives in place (MPI_IN_PLACE; MPI 4.1, section 6.2.3): one buffer holds the rank's
// contribution and receives the result. They save the memory of a second buffer, and the copy from
// it if buf is from Alloc. One rank may call GatherInPlace while another one calls Gather.
//
// The functions that do not wait have no in-place form of their own: Iallreduce and other reductions
// are in place if in and out begin at the same element, and Igather, Iscatter and Iallgather are if
// the small buffer is the rank's own block of the large one. Any other overlap of in and out is an
// error of the program. Alltoall has no in-place form: pass slices.Clone(buf) as in.

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

// ExscanInPlace combines buf of the ranks before this one into buf. On rank 0 it stays as it is.
func ExscanInPlace[T Number](ctx context.Context, c *Comm, buf []T, op Op) error {
	return Exscan(ctx, c, buf, buf, op)
}

// ReduceScatterInPlace combines buf of every rank and gives rank i its block, counts[i]
// elements, at the beginning of buf; the rest of buf is undefined. If counts is nil, each rank's
// block has len(buf)/Size elements.
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
// buf has Size blocks, of which the root's own one has been written; elsewhere buf is the rank's
// block.
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

// AllgatherInPlace collects the blocks of all ranks in every rank's buf, which has Size blocks. Each
// rank has written its own block, at its position.
func AllgatherInPlace[T Number](ctx context.Context, c *Comm, buf []T) error {
	n, err := divided(c, "allgather", buf)
	if err != nil {
		return err
	}
	return Allgather(ctx, c, within(buf, c.rank*n, n), buf)
}

// divided returns the length of a rank's block of buf.
func divided[T Number](c *Comm, what string, buf []T) (int, error) {
	if len(buf)%c.Size() != 0 {
		return 0, c.session.fail(what, c, AnySource, AnyTag, len(buf)*sizeOf[T](), fmt.Errorf("%w: a buffer of %d elements in place, want a multiple of the %d ranks", ErrInvalid, len(buf), c.Size()))
	}
	return len(buf) / c.Size(), nil
}
