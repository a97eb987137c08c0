package lu

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// solver is one rank's part of the computation.
type solver struct {
	domain
	geometry
	comm *outrigger.Comm

	mesh   float64 // distance of points
	second float64 // 1/mesh²
	slope  float64 // 1/(2·mesh)
	// Factors of the implicit blocks: Δt/(2·mesh) and Δt/mesh².
	convectFactor, diffuseFactor float64
	dt                           float64
	diagonal                     diagonal

	u       []vector // the solution
	r       []vector // its residual, and in a time step its change
	forcing []vector
	states  []state // states of the points of u
	line    line

	up, down *wave
	faces    *faces
	sums     []float64 // arena memory
}

func newSolver(p problem, d domain, comm *outrigger.Comm, arena *bench.Arena) (*solver, error) {
	s := &solver{domain: d, geometry: newGeometry(d), comm: comm, dt: p.dt, mesh: 1 / float64(p.edge-1)}
	s.second, s.slope = 1/(s.mesh*s.mesh), 1/(2*s.mesh)
	s.convectFactor, s.diffuseFactor = s.dt*s.slope, s.dt*s.second
	f := 2 * s.diffuseFactor
	s.diagonal = newDiagonal([3]float64{f, f, f})
	s.u, s.r, s.forcing = make([]vector, s.points), make([]vector, s.points), make([]vector, s.points)
	s.states = make([]state, s.points)
	s.line = line{make([]vector, p.edge), make([]vector, p.edge)}
	return s, s.connect(arena)
}

// connect allocates the buffers of all messages in the arena.
func (s *solver) connect(arena *bench.Arena) (err error) {
	if s.up, err = newWave(s.comm, arena, s.domain, +1, 0); err != nil {
		return err
	}
	if s.down, err = newWave(s.comm, arena, s.domain, -1, 2); err != nil {
		return err
	}
	if s.faces, err = newFaces(arena, s.domain); err != nil {
		return err
	}
	s.sums, err = bench.Buffer[float64](arena, len(vector{}), "norms")
	return err
}

// setForcing sets the forcing term to R of the exact solution.
func (s *solver) setForcing() {
	s.fill(s.u, func(at [3]float64, _ bool) vector { return exact(at) })
	s.setStates(s.u)
	s.operator(s.u, s.forcing)
}

// iterate does time steps from the initial state. It is collective.
func (s *solver) iterate(ctx context.Context, steps int, progress bench.Progress) error {
	s.fill(s.u, initial)
	clear(s.r)
	s.residual()
	for i := 1; i <= steps; i++ {
		if err := s.step(ctx); err != nil {
			return fmt.Errorf("time step %d: %w", i, err)
		}
		if progress != nil && (i%20 == 0 || i == 1 || i == steps) {
			progress(i, steps, "")
		}
	}
	return nil
}

// step advances u by one time step and leaves its residual in r.
func (s *solver) step(ctx context.Context) error {
	s.interior(s.geometry, func(at, n, _, _ int) {
		for p := at; p < at+n; p++ {
			for m := range s.r[p] {
				s.r[p][m] *= s.dt
			}
		}
	})
	if err := s.lower(ctx); err != nil {
		return fmt.Errorf("lower sweep: %w", err)
	}
	if err := s.upper(ctx); err != nil {
		return fmt.Errorf("upper sweep: %w", err)
	}
	const gain = 1 / (omega * (2 - omega))
	s.interior(s.geometry, func(at, n, _, _ int) {
		for p := at; p < at+n; p++ {
			for m := range s.r[p] {
				s.u[p][m] += gain * s.r[p][m]
			}
		}
	})
	if err := s.faces.exchange(ctx, s, s.u); err != nil {
		return err
	}
	s.residual()
	return nil
}
