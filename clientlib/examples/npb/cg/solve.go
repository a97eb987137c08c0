package cg

import (
	"context"
	"math"
)

// solver is the state of one run; all vectors are this rank's columns.
type solver struct {
	a          *matrix
	ex         *exchange
	x, z, p, r []float64
}

func newSolver(a *matrix, ex *exchange) *solver {
	n := ex.grid.cols.len()
	s := &solver{a: a, ex: ex}
	s.x, s.z, s.p, s.r = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	return s
}

// ones sets the first guess of the eigenvector.
func (s *solver) ones() {
	for i := range s.x {
		s.x[i] = 1
	}
}

// multiply leaves A·v in the exchange's result.
func (s *solver) multiply(ctx context.Context, v []float64) error {
	s.a.multiply(v, s.ex.partial)
	if err := s.ex.sumPartial(ctx); err != nil {
		return err
	}
	return s.ex.turn(ctx)
}

// conjugateGradient approximates the solution z of A·z = x in a fixed number of
// steps and returns the residual norm ‖x − A·z‖ (RNR-94-007 chapter 2,
// "Kernel CG").
func (s *solver) conjugateGradient(ctx context.Context) (float64, error) {
	clear(s.z)
	copy(s.r, s.x)
	copy(s.p, s.r)
	rho, err := s.ex.sum(ctx, dot(s.r, s.r))
	if err != nil {
		return 0, err
	}
	for range innerSteps {
		if rho, err = s.step(ctx, rho); err != nil {
			return 0, err
		}
	}
	if err := s.multiply(ctx, s.z); err != nil {
		return 0, err
	}
	square, err := s.ex.sum(ctx, distance2(s.x, s.ex.result))
	return math.Sqrt(square), err
}

// step advances z, r and p by one and returns the new rho = r·r.
func (s *solver) step(ctx context.Context, rho float64) (float64, error) {
	if err := s.multiply(ctx, s.p); err != nil {
		return 0, err
	}
	q := s.ex.result
	d, err := s.ex.sum(ctx, dot(s.p, q))
	if err != nil {
		return 0, err
	}
	next, err := s.ex.sum(ctx, advance(s.z, s.r, s.p, q, rho/d))
	if err != nil {
		return 0, err
	}
	follow(s.p, s.r, next/rho)
	return next, nil
}

// eigenvalue returns zeta = shift + 1/(x·z) and makes z, normalized, the next x.
func (s *solver) eigenvalue(ctx context.Context, shift float64) (float64, error) {
	xz, zz, err := s.ex.sum2(ctx, dot(s.x, s.z), dot(s.z, s.z))
	if err != nil {
		return 0, err
	}
	scale := 1 / math.Sqrt(zz)
	for i, v := range s.z {
		s.x[i] = scale * v
	}
	return shift + 1/xz, nil
}

func dot(a, b []float64) float64 {
	b = b[:len(a)]
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// distance2 returns ‖a − b‖².
func distance2(a, b []float64) float64 {
	b = b[:len(a)]
	sum := 0.0
	for i, v := range a {
		d := v - b[i]
		sum += d * d
	}
	return sum
}

// advance does z += alpha·p and r −= alpha·q, and returns r·r.
func advance(z, r, p, q []float64, alpha float64) float64 {
	r, p, q = r[:len(z)], p[:len(z)], q[:len(z)]
	sum := 0.0
	for i := range z {
		z[i] += alpha * p[i]
		v := r[i] - alpha*q[i]
		r[i] = v
		sum += v * v
	}
	return sum
}

// follow does p = r + beta·p.
func follow(p, r []float64, beta float64) {
	r = r[:len(p)]
	for i, v := range p {
		p[i] = r[i] + beta*v
	}
}
