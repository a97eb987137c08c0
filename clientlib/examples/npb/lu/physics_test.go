package lu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// point returns a random vector with positive density and pressure.
func point(r *rand.Rand) vector {
	u := vector{1 + r.Float64(), r.Float64() - 0.5, r.Float64() - 0.5, r.Float64() - 0.5, 0}
	u[4] = 2 + r.Float64()
	return u
}

func stateOf(u vector) *state {
	var s state
	s.set(&u)
	return &s
}

// difference returns (f(u+hv) − f(u−hv)) / 2h.
func difference(f func(u vector) vector, u, v vector) vector {
	const h = 1e-6
	up, down := u, u
	for m := range v {
		up[m] += h * v[m]
		down[m] -= h * v[m]
	}
	a, b := f(up), f(down)
	for m := range a {
		a[m] = (a[m] - b[m]) / (2 * h)
	}
	return a
}

func near(t *testing.T, what string, got, want vector) {
	t.Helper()
	for m := range want {
		if math.Abs(got[m]-want[m]) > 1e-7*(1+math.Abs(want[m])) {
			t.Errorf("%s: component %d is %v, want %v", what, m, got[m], want[m])
		}
	}
}

// The Jacobians of the implicit scheme are the derivatives of the fluxes of the
// explicit one.
func TestJacobiansAreDerivatives(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 50 {
		u, v, fixed := point(r), point(r), point(r)
		for axis := range 3 {
			var got vector
			stateOf(u).convect(axis, 2, &v, &got)
			want := difference(func(u vector) vector { return stateOf(u).convection(axis, &u) }, u, v)
			for m := range want {
				want[m] *= 2
			}
			near(t, "convection", got, want)

			got = vector{}
			stateOf(u).diffuse(axis, 1, &v, &got)
			want = difference(func(u vector) vector { return viscosity(axis, stateOf(fixed), stateOf(u)) }, u, v)
			for m := range want {
				want[m] = c34*want[m] + diffusion[axis]*v[m]
			}
			near(t, "viscosity", got, want)
		}
	}
}

func TestDiagonalIsTheSumOfTheAxes(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	factors := [3]float64{0.3, 0.5, 0.7}
	g := newDiagonal(factors)
	for range 50 {
		s, x := stateOf(point(r)), point(r)
		b := x
		for axis, f := range factors {
			s.diffuse(axis, f, &x, &b)
		}
		g.solve(s, &b)
		near(t, "D⁻¹·D·x", b, x)
	}
}

// The fourth difference of a cubic is zero where it is complete. Near the ends it uses
// only existing points.
func TestDissipation(t *testing.T) {
	const edge = 9
	for i := 1; i < edge-1; i++ {
		c := dissipationAt(i, edge)
		sum := 0.0
		for n, x := range c {
			p := i + n - 2
			if x != 0 && (p < 1 || p > edge-2) {
				t.Errorf("point %d reaches for %d", i, p)
			}
			sum += x * math.Pow(float64(p), 3)
		}
		if whole := i >= 3 && i <= edge-4; whole && sum != 0 {
			t.Errorf("point %d: %v of a cubic", i, sum)
		}
	}
}

func TestExactOnTheBoundary(t *testing.T) {
	if got, want := exact([3]float64{}), (vector{2, 1, 2, 2, 5}); got != want {
		t.Errorf("at the origin %v, want %v", got, want)
	}
	at := [3]float64{0.25, 0, 0.5}
	if initial(at, true) != exact(at) {
		t.Error("the initial state is not exact on the boundary")
	}
}

// squares sums over the squares of the six faces, corner by corner.
func squares(lo, hi [3]int, value func(g [3]int) float64) float64 {
	sum := 0.0
	for axis := range 3 {
		a, b := (axis+1)%3, (axis+2)%3
		for _, end := range []int{lo[axis], hi[axis]} {
			for i := lo[a]; i < hi[a]; i++ {
				for j := lo[b]; j < hi[b]; j++ {
					for corner := range 4 {
						var g [3]int
						g[axis], g[a], g[b] = end, i+corner&1, j+corner>>1
						sum += value(g)
					}
				}
			}
		}
	}
	return sum
}

func TestSurfaceWeights(t *testing.T) {
	lo, hi := [3]int{1, 1, 2}, [3]int{6, 5, 6}
	value := func(g [3]int) float64 { return float64(g[0] + 10*g[1] + 100*g[2]*g[0]) }
	sum := 0.0
	for x := range 8 {
		for y := range 8 {
			for z := range 8 {
				g := [3]int{x, y, z}
				sum += facesAt(g, lo, hi) * value(g)
			}
		}
	}
	if want := squares(lo, hi, value); sum != want {
		t.Errorf("weighted sum %v, over all squares %v", sum, want)
	}
}
