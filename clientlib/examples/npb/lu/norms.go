package lu

import (
	"context"
	"math"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// norm returns the root mean square of each component of v over all points that are
// computed. It is collective.
func (s *solver) norm(ctx context.Context, v []vector) (vector, error) {
	clear(s.sums)
	s.interior(s.geometry, func(at, n, _, _ int) {
		for p := at; p < at+n; p++ {
			for m, x := range v[p] {
				s.sums[m] += x * x
			}
		}
	})
	if err := outrigger.Allreduce(ctx, s.comm, s.sums, s.sums, outrigger.Sum); err != nil {
		return vector{}, err
	}
	points := math.Pow(float64(s.edge-2), 3)
	var norm vector
	for m := range norm {
		norm[m] = math.Sqrt(s.sums[m] / points)
	}
	return norm, nil
}

// deviation returns the norm of the difference to the exact solution. It overwrites
// the residual with the difference.
func (s *solver) deviation(ctx context.Context) (vector, error) {
	s.interior(s.geometry, func(at, n, j, k int) {
		for i := range n {
			g := s.global(s.start[0]+i, j, k)
			want := exact([3]float64{float64(g[0]) * s.mesh, float64(g[1]) * s.mesh, float64(g[2]) * s.mesh})
			for m := range want {
				s.r[at+i][m] = want[m] - s.u[at+i][m]
			}
		}
	})
	return s.norm(ctx, s.r)
}

// surface integrates the pressure over the faces of a box that is a little
// smaller than the cube, by the trapezoidal rule (NPB's pintgr). It is collective.
func (s *solver) surface(ctx context.Context) (float64, error) {
	lo, hi := [3]int{1, 1, 2}, [3]int{s.edge - 2, s.edge - 3, s.edge - 2}
	sum := 0.0
	s.interior(s.geometry, func(at, n, j, k int) {
		for i := range n {
			g := s.global(s.start[0]+i, j, k)
			if weight := facesAt(g, lo, hi); weight > 0 {
				var point state
				point.set(&s.u[at+i])
				sum += weight * point.pressure() * s.u[at+i][0]
			}
		}
	})
	s.sums[0] = sum
	if err := outrigger.Allreduce(ctx, s.comm, s.sums[:1], s.sums[:1], outrigger.Sum); err != nil {
		return 0, err
	}
	return 0.25 * s.mesh * s.mesh * s.sums[0], nil
}

// facesAt returns the weight of a point in the sum over the corners of all squares of
// the box's faces: on a face, the number of squares of which it is a corner.
func facesAt(g, lo, hi [3]int) float64 {
	var squares [3]float64 // along each axis: 2 within, 1 at an end
	for axis := range g {
		switch {
		case g[axis] < lo[axis] || g[axis] > hi[axis]:
			return 0
		case g[axis] == lo[axis] || g[axis] == hi[axis]:
			squares[axis] = 1
		default:
			squares[axis] = 2
		}
	}
	weight := 0.0
	for axis := range g {
		if squares[axis] == 1 {
			weight += squares[(axis+1)%3] * squares[(axis+2)%3]
		}
	}
	return weight
}
