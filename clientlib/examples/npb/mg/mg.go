// Package mg is the NAS Parallel Benchmark MG: a three-dimensional discrete
// Poisson equation on a periodic cube, solved by a few V-cycles of a multigrid
// method (RNR-94-007 chapter 2, "Kernel MG"; the message form is that of
// NAS-95-020 and NPB 3.x).
//
// It tests memory bandwidth and, between ranks, the exchange of faces with six
// neighbours on every grid level: messages from a megabyte down to 8 bytes.
package mg

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Run executes class on all ranks of comm, a power of two that leaves every
// rank a cell on the grid below the finest (otherwise bench.ErrRanks), and
// returns the same result on each. A failed verification is a result, not an
// error. Progress may be nil.
func Run(ctx context.Context, comm *outrigger.Comm, class bench.Class, progress bench.Progress) (bench.Result, error) {
	return bench.Execute(comm, "mg", problems, class, func(arena *bench.Arena, p problem) (bench.Result, error) {
		topo, err := newTopology(comm.Size(), comm.Rank())
		if err != nil {
			return bench.Result{}, err
		}
		return run(ctx, comm, arena, p, topo, progress.OnRoot(comm))
	})
}

func run(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, p problem, topo topology, progress bench.Progress) (bench.Result, error) {
	result := bench.Result{
		Benchmark: "MG", Size: fmt.Sprintf("%dx%dx%d", p.edge, p.edge, p.edge),
		Iterations: p.iterations, Ranks: comm.Size(), Operation: "floating point",
	}
	clock, err := bench.NewClock(comm, arena)
	if err != nil {
		return result, err
	}
	s, err := newSolver(p, comm, arena, topo)
	if err != nil {
		return result, err
	}
	if err := s.warmUp(ctx); err != nil {
		return result, err
	}
	if err := clock.Start(ctx); err != nil {
		return result, err
	}
	if err := s.iterate(ctx, p.iterations, progress); err != nil {
		return result, err
	}
	norm, err := s.norm(ctx)
	if err != nil {
		return result, err
	}
	seconds, err := clock.Stop(ctx)
	if err != nil {
		return result, err
	}
	result.Timing(p.operations(), seconds)
	result.Verify(bench.Check{Name: "L2 norm of residual", Value: norm, Reference: p.norm, Tolerance: tolerance})
	return result, nil
}

// warmUp sets the problem up and does one untimed iteration, which touches all code
// and memory; then it sets the problem up again.
func (s *solver) warmUp(ctx context.Context) error {
	if err := s.charge(ctx); err != nil {
		return err
	}
	if err := s.iterate(ctx, 1, nil); err != nil {
		return err
	}
	s.levels.u[s.levels.hi].zero()
	return nil
}
