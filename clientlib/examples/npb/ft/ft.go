// Package ft is the NAS Parallel Benchmark FT: the heat equation on a periodic
// box, solved by one forward three-dimensional fast Fourier transform and one
// inverse transform for each time step (RNR-94-007 chapter 2, "Kernel FT"; the
// message form is that of NAS-95-020 and NPB 3.x with a one-dimensional division).
//
// It tests the speed of transforms and, between ranks, the transposition of the
// whole array by one alltoall for each of them: large messages from every rank to
// every rank, and nothing else.
package ft

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Run executes class on all ranks of comm, a power of two that leaves every rank
// a plane of y and one of z (otherwise bench.ErrRanks), and returns the same
// result on each. A failed verification is a result, not an error. Progress may
// be nil.
func Run(ctx context.Context, comm *outrigger.Comm, class bench.Class, progress bench.Progress) (bench.Result, error) {
	return bench.Execute(comm, "ft", problems, class, func(arena *bench.Arena, p problem) (bench.Result, error) {
		l, err := newLayout(p, comm.Size(), comm.Rank())
		if err != nil {
			return bench.Result{}, err
		}
		return run(ctx, comm, arena, p, l, progress.OnRoot(comm))
	})
}

func run(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, p problem, l layout, progress bench.Progress) (bench.Result, error) {
	result := bench.Result{
		Benchmark: "FT", Size: fmt.Sprintf("%dx%dx%d", p.nx, p.ny, p.nz),
		Iterations: len(p.checksums), Ranks: comm.Size(), Operation: "floating point",
	}
	clock, err := bench.NewClock(comm, arena)
	if err != nil {
		return result, err
	}
	s, err := newSolver(p, l, comm, arena)
	if err != nil {
		return result, err
	}
	// One untimed step touches all code and memory; then the run starts again.
	if _, err := s.solve(ctx, 1, nil); err != nil {
		return result, err
	}
	if err := clock.Start(ctx); err != nil {
		return result, err
	}
	sums, err := s.solve(ctx, len(p.checksums), progress)
	if err != nil {
		return result, err
	}
	seconds, err := clock.Stop(ctx)
	if err != nil {
		return result, err
	}
	result.Timing(p.operations(), seconds)
	result.Verify(checks(sums, p.checksums)...)
	return result, nil
}

// checks compares both parts of each checksum, as NPB does.
func checks(sums, published []complex128) []bench.Check {
	var all []bench.Check
	for i, want := range published {
		all = append(all,
			bench.Check{Name: fmt.Sprintf("checksum %d, real", i+1), Value: real(sums[i]), Reference: real(want), Tolerance: tolerance},
			bench.Check{Name: fmt.Sprintf("checksum %d, imaginary", i+1), Value: imag(sums[i]), Reference: imag(want), Tolerance: tolerance})
	}
	return all
}
