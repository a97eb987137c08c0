package mg

import (
	"context"
	"fmt"
	"math"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// solver is one rank's state: A·u = v on the finest grid, and the grids below.
type solver struct {
	p      problem
	comm   *outrigger.Comm
	arena  *bench.Arena
	topo   topology
	v      field
	levels *hierarchy
	sum    []float64 // arena memory, one element: the norm's reduction
}

func newSolver(p problem, comm *outrigger.Comm, arena *bench.Arena, topo topology) (*solver, error) {
	lo, err := topo.coarsest(p.levels())
	if err != nil {
		return nil, err
	}
	s := &solver{p: p, comm: comm, arena: arena, topo: topo, v: newField(topo.local(p.edge))}
	if s.sum, err = bench.Buffer[float64](arena, 1, "norm"); err != nil {
		return nil, err
	}
	s.levels = newHierarchy(topo, lo, p.levels(), p.smoother)
	if s.levels.ghosts, err = newGhosts(comm, topo, s.v, arena); err != nil {
		return nil, err
	}
	if lo > 1 {
		s.levels.coarse, err = newAgglomeration(comm, arena, topo, lo, p.smoother)
	}
	return s, err
}

// charge sets up the right-hand side, ghosts included.
func (s *solver) charge(ctx context.Context) error {
	if err := charge(ctx, s.comm, s.arena, s.topo, s.p.edge, s.v); err != nil {
		return err
	}
	return s.levels.ghosts.refresh(ctx, s.v)
}

// residual evaluates the equation on the finest grid.
func (s *solver) residual(ctx context.Context) error {
	return s.levels.residual(ctx, s.levels.hi, s.v)
}

// iterate does V-cycles, each followed by the residual that the next one needs.
func (s *solver) iterate(ctx context.Context, iterations int, progress bench.Progress) error {
	if err := s.residual(ctx); err != nil {
		return err
	}
	for i := 1; i <= iterations; i++ {
		if err := s.levels.cycle(ctx, s.v); err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
		if err := s.residual(ctx); err != nil {
			return fmt.Errorf("iteration %d: %w", i, err)
		}
		if progress != nil {
			progress(i, iterations, "")
		}
	}
	return nil
}

// norm returns the root mean square of the residual over all cells.
func (s *solver) norm(ctx context.Context) (float64, error) {
	s.sum[0] = s.levels.r[s.levels.hi].sumSquares()
	if err := outrigger.Allreduce(ctx, s.comm, s.sum, s.sum, outrigger.Sum); err != nil {
		return 0, fmt.Errorf("norm of the residual: %w", err)
	}
	return math.Sqrt(s.sum[0] / s.p.cells()), nil
}
