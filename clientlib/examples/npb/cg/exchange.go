package cg

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Tags: one for each kind of message; messages of a kind between two ranks are
// received in the order of sending, so that rounds need no tags of their own.
const (
	tagScalar = iota + 1
	tagPartial
	tagTranspose
)

// exchange does the three communications of CG, each as pairwise messages like
// NPB's (the 8-byte ones are the reductions that dominate CG's message count).
// Its buffers are arena memory.
type exchange struct {
	comm *outrigger.Comm
	grid grid

	partial []float64 // a product of the block: one partial sum for each row
	inbox   []float64 // the partner's partial sums, as many as in partial
	result  []float64 // the summed product: one value for each column
	scalar  []float64 // two values and the partner's two
}

func newExchange(c *outrigger.Comm, g grid, a *bench.Arena) (*exchange, error) {
	e := &exchange{comm: c, grid: g}
	for _, b := range []struct {
		buffer  *[]float64
		n       int
		purpose string
	}{
		{&e.partial, g.rows.len(), "partial sums"},
		{&e.inbox, g.rows.len(), "received partial sums"},
		{&e.result, g.cols.len(), "matrix-vector product"},
		{&e.scalar, 4, "scalars"},
	} {
		var err error
		if *b.buffer, err = bench.Buffer[float64](a, b.n, b.purpose); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// sumPartial adds partial over the grid row. Afterwards the part of partial that the
// rank keeps has the complete sums. In a wide grid the ranks exchange halves in the
// first round, so that the later rounds send half as much.
func (e *exchange) sumPartial(ctx context.Context) error {
	keep := e.grid.keep
	sum := e.partial[keep.lo:keep.hi]
	in := e.inbox[keep.lo:keep.hi]
	for i := len(e.grid.partners) - 1; i >= 0; i-- {
		give := e.grid.gives(i)
		partner := e.grid.partners[i]
		if _, err := outrigger.Sendrecv(ctx, e.comm, e.partial[give.lo:give.hi], partner, tagPartial,
			in, partner, tagPartial); err != nil {
			return fmt.Errorf("summing the product with rank %d: %w", partner, err)
		}
		for j, v := range in {
			sum[j] += v
		}
	}
	return nil
}

// turn sends the kept sums to the rank whose columns they are, and receives this
// rank's into result.
func (e *exchange) turn(ctx context.Context) error {
	kept := e.partial[e.grid.keep.lo:e.grid.keep.hi]
	other := e.grid.transpose
	if other == e.grid.rank {
		copy(e.result, kept)
		return nil
	}
	if _, err := outrigger.Sendrecv(ctx, e.comm, kept, other, tagTranspose, e.result, other, tagTranspose); err != nil {
		return fmt.Errorf("transposing the product with rank %d: %w", other, err)
	}
	return nil
}

// sum returns the sum of x over the grid row, which is the sum over the whole vector.
func (e *exchange) sum(ctx context.Context, x float64) (float64, error) {
	e.scalar[0] = x
	err := e.sumScalars(ctx, 1)
	return e.scalar[0], err
}

// sum2 adds two values with one message a round.
func (e *exchange) sum2(ctx context.Context, x, y float64) (sx, sy float64, err error) {
	e.scalar[0], e.scalar[1] = x, y
	err = e.sumScalars(ctx, 2)
	return e.scalar[0], e.scalar[1], err
}

func (e *exchange) sumScalars(ctx context.Context, n int) error {
	out, in := e.scalar[:n], e.scalar[2:2+n]
	for _, partner := range e.grid.partners {
		if _, err := outrigger.Sendrecv(ctx, e.comm, out, partner, tagScalar, in, partner, tagScalar); err != nil {
			return fmt.Errorf("summing a scalar with rank %d: %w", partner, err)
		}
		for i, v := range in {
			out[i] += v
		}
	}
	return nil
}
