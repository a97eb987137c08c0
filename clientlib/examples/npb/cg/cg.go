// Package cg is the NAS Parallel Benchmark CG: the smallest eigenvalue of a
// large sparse symmetric matrix by inverse iteration, each step solved with 25
// steps of conjugate gradient (RNR-94-007 chapter 2, "Kernel CG"; the message form
// is that of NAS-95-020 and NPB 3.x).
//
// It tests irregular memory access and, between ranks, many 8-byte messages,
// exchanges of partial sums along the rows of a two-dimensional rank grid, and
// a transposition of that grid.
package cg

import (
	"context"
	"fmt"
	"strconv"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Run executes class on all ranks of comm, a power of two (otherwise
// bench.ErrRanks), and returns the same result on each. A failed verification
// is a result, not an error. Progress may be nil.
func Run(ctx context.Context, comm *outrigger.Comm, class bench.Class, progress bench.Progress) (bench.Result, error) {
	return bench.Execute(comm, "cg", problems, class, func(arena *bench.Arena, p problem) (bench.Result, error) {
		g, err := newGrid(p.n, comm.Size(), comm.Rank())
		if err != nil {
			return bench.Result{}, err
		}
		return run(ctx, comm, arena, p, g, progress)
	})
}

func run(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, p problem, g grid, progress bench.Progress) (bench.Result, error) {
	result := bench.Result{
		Benchmark: "CG", Size: strconv.Itoa(p.n), Iterations: p.iterations,
		Ranks: comm.Size(), Operation: "floating point",
	}
	clock, err := bench.NewClock(comm, arena)
	if err != nil {
		return result, err
	}
	ex, err := newExchange(comm, g, arena)
	if err != nil {
		return result, err
	}
	s := newSolver(newMatrix(p, g.rows, g.cols), ex)

	// One untimed iteration touches all code and memory; then the run starts again.
	if _, err := s.iterate(ctx, p.shift, 1, nil); err != nil {
		return result, err
	}
	if err := clock.Start(ctx); err != nil {
		return result, err
	}
	zeta, err := s.iterate(ctx, p.shift, p.iterations, progress.OnRoot(comm))
	if err != nil {
		return result, err
	}
	seconds, err := clock.Stop(ctx)
	if err != nil {
		return result, err
	}
	result.Timing(p.operations(), seconds)
	result.Verify(bench.Check{Name: "zeta", Value: zeta, Reference: p.zeta, Tolerance: tolerance})
	return result, nil
}

// iterate runs the inverse iteration from a vector of ones.
func (s *solver) iterate(ctx context.Context, shift float64, iterations int, progress bench.Progress) (zeta float64, err error) {
	s.ones()
	for i := 1; i <= iterations; i++ {
		residual, err := s.conjugateGradient(ctx)
		if err != nil {
			return 0, fmt.Errorf("iteration %d: %w", i, err)
		}
		if zeta, err = s.eigenvalue(ctx, shift); err != nil {
			return 0, fmt.Errorf("iteration %d: %w", i, err)
		}
		if progress != nil {
			progress(i, iterations, fmt.Sprintf("zeta = %.13f  ||r|| = %.3E", zeta, residual))
		}
	}
	return zeta, nil
}
