// Package lu is the NAS Parallel Benchmark LU: the steady state of compressible
// flow in a cube by symmetric successive over-relaxation (RNR-94-007 chapter 3,
// "LU"; the message form is that of NAS-95-020 and NPB 3.x).
//
// It tests floating point speed on blocks of 5 x 5 and, between ranks, wavefronts:
// for every plane of the cube, twice in a time step, a small message to each of two
// neighbours, which wait for it, from buffers that are reused.
package lu

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Run executes class on all ranks of comm, any number that leaves each two points
// along x and along y (otherwise bench.ErrRanks), and returns the same result on
// each. A failed verification is a result, not an error. Progress may be nil.
func Run(ctx context.Context, comm *outrigger.Comm, class bench.Class, progress bench.Progress) (bench.Result, error) {
	return bench.Execute(comm, "lu", problems, class, func(arena *bench.Arena, p problem) (bench.Result, error) {
		d, err := newDomain(p.edge, comm.Size(), comm.Rank())
		if err != nil {
			return bench.Result{}, err
		}
		return run(ctx, comm, arena, p, d, progress.OnRoot(comm))
	})
}

func run(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, p problem, d domain, progress bench.Progress) (bench.Result, error) {
	result := bench.Result{
		Benchmark: "LU", Size: fmt.Sprintf("%dx%dx%d", p.edge, p.edge, p.edge),
		Iterations: p.steps, Ranks: comm.Size(), Operation: "floating point",
	}
	clock, err := bench.NewClock(comm, arena)
	if err != nil {
		return result, err
	}
	s, err := newSolver(p, d, comm, arena)
	if err != nil {
		return result, err
	}
	s.setForcing()
	// One untimed step touches all code and memory; then the run starts again.
	if err := s.iterate(ctx, 1, nil); err != nil {
		return result, err
	}
	if err := clock.Start(ctx); err != nil {
		return result, err
	}
	if err := s.iterate(ctx, p.steps, progress); err != nil {
		return result, err
	}
	seconds, err := clock.Stop(ctx)
	if err != nil {
		return result, err
	}
	result.Timing(p.operations(), seconds)
	return result, s.verify(ctx, p, &result)
}

// verify computes the eleven values that NPB publishes.
func (s *solver) verify(ctx context.Context, p problem, result *bench.Result) error {
	residual, err := s.norm(ctx, s.r)
	if err != nil {
		return fmt.Errorf("norm of the residual: %w", err)
	}
	deviation, err := s.deviation(ctx)
	if err != nil {
		return fmt.Errorf("norm of the deviation: %w", err)
	}
	surface, err := s.surface(ctx)
	if err != nil {
		return fmt.Errorf("surface integral: %w", err)
	}
	var all []bench.Check
	for m := range residual {
		all = append(all, bench.Check{Name: fmt.Sprintf("residual %d", m+1), Value: residual[m], Reference: p.residual[m], Tolerance: tolerance})
	}
	for m := range deviation {
		all = append(all, bench.Check{Name: fmt.Sprintf("deviation %d", m+1), Value: deviation[m], Reference: p.solution[m], Tolerance: tolerance})
	}
	result.Verify(append(all, bench.Check{Name: "surface integral", Value: surface, Reference: p.surface, Tolerance: tolerance})...)
	return nil
}
