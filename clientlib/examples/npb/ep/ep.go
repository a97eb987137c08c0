// Package ep is the NAS Parallel Benchmark EP ("embarrassingly parallel"):
// pairs of Gaussian deviates by the polar method from 2ᵐ⁺¹ pseudorandom
// numbers, counted by square annulus (RNR-94-007 chapter 2, "Kernel EP"; the
// message form is that of NAS-95-020 and NPB 3.x).
//
// It measures floating point speed; between ranks there is one sum at the end.
package ep

import (
	"context"
	"fmt"
	"strconv"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Run executes class on all ranks of comm, any number up to one for each batch
// of 65,536 pairs (otherwise bench.ErrRanks), and returns the same result on
// each. A failed verification is a result, not an error. Progress may be nil;
// its steps are rank 0's batches.
func Run(ctx context.Context, comm *outrigger.Comm, class bench.Class, progress bench.Progress) (bench.Result, error) {
	return bench.Execute(comm, "ep", problems, class, func(arena *bench.Arena, p problem) (bench.Result, error) {
		if comm.Size() > p.batches() {
			return bench.Result{}, fmt.Errorf("%w: got %d, class %s has work for at most %d", bench.ErrRanks, comm.Size(), class, p.batches())
		}
		return run(ctx, comm, arena, p, progress.OnRoot(comm))
	})
}

func run(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, p problem, progress bench.Progress) (bench.Result, error) {
	result := bench.Result{Benchmark: "EP", Size: strconv.Itoa(p.numbers()), Ranks: comm.Size(), Operation: "random numbers"}
	clock, err := bench.NewClock(comm, arena)
	if err != nil {
		return result, err
	}
	sums, err := bench.Buffer[float64](arena, 2+annuli, "sums")
	if err != nil {
		return result, err
	}
	if err := clock.Start(ctx); err != nil {
		return result, err
	}
	t, err := tallyBatches(ctx, p, comm, progress)
	if err != nil {
		return result, err
	}
	if err := t.reduce(ctx, comm, sums); err != nil {
		return result, err
	}
	seconds, err := clock.Stop(ctx)
	if err != nil {
		return result, err
	}
	result.Timing(float64(p.numbers()), seconds)
	result.Verify(
		bench.Check{Name: "sum of x", Value: t.x, Reference: p.x, Tolerance: tolerance},
		bench.Check{Name: "sum of y", Value: t.y, Reference: p.y, Tolerance: tolerance})
	return result, nil
}

// tallyBatches computes this rank's share of the batches, which are numbered over
// all ranks.
func tallyBatches(ctx context.Context, p problem, comm *outrigger.Comm, progress bench.Progress) (tally, error) {
	var t tally
	lo, hi := bench.Block(p.batches(), comm.Size(), comm.Rank())
	// A note for each of a thousand batches would be too many.
	stride := max((hi-lo)/16, 1)
	for b := lo; b < hi; b++ {
		if err := ctx.Err(); err != nil {
			return t, fmt.Errorf("batch %d: %w", b, err)
		}
		t.batch(uint64(b))
		if done := b - lo + 1; progress != nil && (done%stride == 0 || b == hi-1) {
			progress(done, hi-lo, "")
		}
	}
	return t, nil
}

// reduce makes t the sum over all ranks, with NPB's three reductions: two of
// one number and one of the annuli. sums is arena memory for 2+annuli numbers.
func (t *tally) reduce(ctx context.Context, comm *outrigger.Comm, sums []float64) error {
	sums[0], sums[1] = t.x, t.y
	copy(sums[2:], t.count[:])
	for _, part := range [][]float64{sums[0:1], sums[1:2], sums[2 : 2+annuli]} {
		if err := outrigger.Allreduce(ctx, comm, part, part, outrigger.Sum); err != nil {
			return fmt.Errorf("summing over the ranks: %w", err)
		}
	}
	t.x, t.y = sums[0], sums[1]
	copy(t.count[:], sums[2:])
	return nil
}
