package ft

import (
	"context"
	"fmt"
	"math"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"
)

// solver is one rank's part of the computation.
type solver struct {
	layout
	comm          *outrigger.Comm
	x, y, z       *transform
	spectrum      []complex128 // spectrum of the solution, divided by y
	decay         []float64    // factor of each mode in one time step, divided by y
	u             []complex128 // workspace: a solution between two divisions
	outgoing      []complex128 // arena memory: blocks for the other ranks
	incoming      []complex128 // arena memory: blocks from them
	sum, checksum []complex128 // arena memory, one element each
}

func newSolver(p problem, l layout, comm *outrigger.Comm, arena *bench.Arena) (*solver, error) {
	s := &solver{
		layout: l, comm: comm,
		x: newTransform(p.nx, 1), y: newTransform(p.ny, p.nx), z: newTransform(p.nz, p.nx),
		spectrum: make([]complex128, l.elements()), decay: make([]float64, l.elements()),
		u: make([]complex128, l.elements()),
	}
	for _, b := range []struct {
		to      *[]complex128
		n       int
		purpose string
	}{
		{&s.outgoing, l.elements(), "blocks to send"},
		{&s.incoming, l.elements(), "blocks to receive"},
		{&s.sum, 1, "checksum of a rank"},
		{&s.checksum, 1, "checksum"},
	} {
		var err error
		if *b.to, err = bench.Buffer[complex128](arena, b.n, b.purpose); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// solve runs the whole benchmark and returns a checksum for each time step. It is
// collective.
func (s *solver) solve(ctx context.Context, steps int, progress bench.Progress) ([]complex128, error) {
	s.initialize()
	s.setDecay()
	if err := s.forward(ctx); err != nil {
		return nil, fmt.Errorf("forward transform: %w", err)
	}
	var sums []complex128
	for step := 1; step <= steps; step++ {
		s.evolve()
		if err := s.backward(ctx); err != nil {
			return nil, fmt.Errorf("step %d: inverse transform: %w", step, err)
		}
		sum, err := s.total(ctx)
		if err != nil {
			return nil, fmt.Errorf("step %d: checksum: %w", step, err)
		}
		sums = append(sums, sum)
		if progress != nil {
			progress(step, steps, fmt.Sprintf("checksum = %.12E %.12E", real(sum), imag(sum)))
		}
	}
	return sums, nil
}

// initialize fills u, divided by z, with the pseudorandom sequence: the real and
// the imaginary part of each point, along x, then y, then z.
func (s *solver) initialize() {
	stream := randlc.New(randlc.Seed)
	stream.Skip(2 * uint64(s.firstZ) * uint64(s.ny) * uint64(s.nx))
	for i := range s.u {
		re := stream.Next()
		s.u[i] = complex(re, stream.Next())
	}
}

// setDecay computes e^(−4απ²·|k|²) for each mode k, where the upper half of the
// indices of an axis are the negative wave numbers.
func (s *solver) setDecay() {
	const factor = -4 * alpha * math.Pi * math.Pi
	i := 0
	for y := range s.rows {
		ky := wave(s.firstY+y, s.ny)
		for z := range s.nz {
			kz := wave(z, s.nz)
			for x := range s.nx {
				kx := wave(x, s.nx)
				s.decay[i] = math.Exp(factor * float64(kx*kx+ky*ky+kz*kz))
				i++
			}
		}
	}
}

// wave returns the wave number of index i of n.
func wave(i, n int) int {
	if i >= n/2 {
		return i - n
	}
	return i
}

// forward turns u, divided by z, into its spectrum, divided by y.
func (s *solver) forward(ctx context.Context) error {
	s.transformPlanes(false)
	s.planesToBlocks(s.u, s.outgoing)
	if err := outrigger.Alltoall(ctx, s.comm, s.outgoing, s.incoming); err != nil {
		return err
	}
	s.blocksToColumns(s.incoming, s.spectrum)
	s.transformColumns(s.spectrum, false)
	return nil
}

// evolve advances the spectrum by one time step and copies it to u.
func (s *solver) evolve() {
	for i, c := range s.spectrum {
		f := s.decay[i]
		c = complex(real(c)*f, imag(c)*f)
		s.spectrum[i], s.u[i] = c, c
	}
}

// backward turns u from a spectrum, divided by y, into a solution times the
// number of points, divided by z.
func (s *solver) backward(ctx context.Context) error {
	s.transformColumns(s.u, true)
	s.columnsToBlocks(s.u, s.outgoing)
	if err := outrigger.Alltoall(ctx, s.comm, s.outgoing, s.incoming); err != nil {
		return err
	}
	s.blocksToPlanes(s.incoming, s.u)
	s.transformPlanes(true)
	return nil
}

// transformPlanes transforms u along x and y.
func (s *solver) transformPlanes(inverse bool) {
	plane := s.nx * s.ny
	for start := 0; start < len(s.u); start += s.nx {
		s.x.apply(s.u[start:start+s.nx], 1, inverse)
	}
	for start := 0; start < len(s.u); start += plane {
		s.y.apply(s.u[start:start+plane], s.nx, inverse)
	}
}

// transformColumns transforms u, divided by y, along z.
func (s *solver) transformColumns(u []complex128, inverse bool) {
	plane := s.nx * s.nz
	for start := 0; start < len(u); start += plane {
		s.z.apply(u[start:start+plane], s.nx, inverse)
	}
}

// total sums 1,024 points of the solution in u over all ranks (NPB's checksum).
func (s *solver) total(ctx context.Context) (complex128, error) {
	s.sum[0] = s.partial()
	if err := outrigger.Allreduce(ctx, s.comm, s.sum, s.checksum, outrigger.Sum); err != nil {
		return 0, err
	}
	n := float64(s.nx) * float64(s.ny) * float64(s.nz)
	return complex(real(s.checksum[0])/n, imag(s.checksum[0])/n), nil
}

// partial sums those points that this rank has.
func (s *solver) partial() complex128 {
	const points = 1024
	var sum complex128
	for j := 1; j <= points; j++ {
		x, y, z := j%s.nx, 3*j%s.ny, 5*j%s.nz-s.firstZ
		if z >= 0 && z < s.planes {
			sum += s.u[(z*s.ny+y)*s.nx+x]
		}
	}
	return sum
}
