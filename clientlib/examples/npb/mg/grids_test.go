package mg

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// randomWhole returns a random periodic grid function with valid ghosts.
func randomWhole(edge int) field {
	f := newField(triple{edge, edge, edge})
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range f.v {
		f.v[i] = rng.Float64() - 0.5
	}
	wrapAll(f)
	return f
}

func wrapAll(f field) {
	for axis := range 3 {
		f.wrap(axis)
	}
}

// value reads a cell at periodic global coordinates, not using ghosts.
func value(f field, i, j, k int) float64 {
	n := f.n[0]
	return f.row((j+n)%n+1, (k+n)%n+1)[(i+n)%n+1]
}

func TestWrapIsPeriodic(t *testing.T) {
	f := randomWhole(4)
	for k := -1; k <= 4; k++ {
		for j := -1; j <= 4; j++ {
			for i := -1; i <= 4; i++ {
				if got, want := f.row(j+1, k+1)[i+1], value(f, i, j, k); got != want {
					t.Fatalf("cell (%d,%d,%d) is %v, want %v", i, j, k, got, want)
				}
			}
		}
	}
}

// Faces packed by one rank and unpacked by its neighbour, axis by axis, must
// leave every rank with its block of the whole grid, edges and corners included.
func TestFacesCarryAllGhosts(t *testing.T) {
	const edge = 8
	whole := randomWhole(edge)
	for _, ranks := range []int{2, 4, 8, 16, 64} {
		all := topologies(t, ranks)
		parts := make([]field, ranks)
		for r, topo := range all {
			want := newField(topo.local(edge))
			cut(whole, topo.origin(topo.at, edge), want)
			parts[r] = newField(want.n)
			buf := make([]float64, want.n[0]*want.n[1]*want.n[2])
			packCells(want, buf)
			unpackCells(parts[r], triple{}, want.n, buf)
		}
		for axis := range 3 {
			tradeAll(all, parts, axis)
		}
		for r, topo := range all {
			want := newField(topo.local(edge))
			cut(whole, topo.origin(topo.at, edge), want)
			for i, x := range want.v {
				if parts[r].v[i] != x {
					t.Fatalf("%d ranks: rank %d differs at %d: %v, want %v", ranks, r, i, parts[r].v[i], x)
				}
			}
		}
	}
}

// tradeAll does for all ranks what ghosts.trade does with messages.
func tradeAll(all []topology, parts []field, axis int) {
	n := parts[0].faceLen(axis)
	up, down := make([][]float64, len(all)), make([][]float64, len(all))
	for r, f := range parts {
		up[r], down[r] = make([]float64, n), make([]float64, n)
		f.pack(axis, f.n[axis], up[r])
		f.pack(axis, 1, down[r])
	}
	for r, f := range parts {
		f.unpack(axis, 0, up[all[r].neighbour(axis, -1)])
		f.unpack(axis, f.n[axis]+1, down[all[r].neighbour(axis, +1)])
	}
}

// apply applies a 27-point operator in the slow, direct way.
func apply(s stencil, f field, i, j, k int) float64 {
	sum := 0.0
	for dk := -1; dk <= 1; dk++ {
		for dj := -1; dj <= 1; dj++ {
			for di := -1; di <= 1; di++ {
				sum += s[di*di+dj*dj+dk*dk] * value(f, i+di, j+dj, k+dk)
			}
		}
	}
	return sum
}

func TestOperatorsAgainstTheirStencils(t *testing.T) {
	const edge = 8
	u, v := randomWhole(edge), newField(triple{edge, edge, edge})
	for i := range v.v {
		v.v[i] = float64(i % 7)
	}
	r, w := newField(u.n), newField(u.n)
	copy(w.v, v.v)
	work := newColumns(u.width)
	residual(u, v, r, laplacian, work)
	smooth(u, w, smootherB, work)
	for k := range edge {
		for j := range edge {
			for i := range edge {
				want := value(v, i, j, k) - apply(laplacian, u, i, j, k)
				if got := value(r, i, j, k); math.Abs(got-want) > 1e-13 {
					t.Fatalf("residual at (%d,%d,%d) is %v, want %v", i, j, k, got, want)
				}
				want = value(v, i, j, k) + apply(smootherB, u, i, j, k)
				if got := value(w, i, j, k); math.Abs(got-want) > 1e-13 {
					t.Fatalf("smoothing at (%d,%d,%d) gives %v, want %v", i, j, k, got, want)
				}
			}
		}
	}
}

// Coarse cell c coincides with fine cell 2c+1 (counted without ghosts from zero).
func TestTransfersAgainstTheirStencils(t *testing.T) {
	const edge = 8
	fine := randomWhole(edge)
	coarse := newField(triple{edge / 2, edge / 2, edge / 2})
	restrict(fine, coarse, newColumns(fine.width))
	wrapAll(coarse)
	up := newField(fine.n)
	interpolate(coarse, up, newLifts(coarse.width))
	weights := stencil{0.5, 0.25, 0.125, 0.0625}
	for k := range edge {
		for j := range edge {
			for i := range edge {
				if i%2*(j%2)*(k%2) == 1 {
					want := apply(weights, fine, i, j, k)
					if got := value(coarse, i/2, j/2, k/2); math.Abs(got-want) > 1e-13 {
						t.Fatalf("coarse cell at (%d,%d,%d) is %v, want %v", i, j, k, got, want)
					}
				}
				if got, want := value(up, i, j, k), trilinear(coarse, i, j, k); math.Abs(got-want) > 1e-13 {
					t.Fatalf("interpolation at (%d,%d,%d) is %v, want %v", i, j, k, got, want)
				}
			}
		}
	}
	before := append([]float64(nil), up.v...)
	wrapAll(up)
	for i, x := range up.v {
		if before[i] != x {
			t.Fatalf("interpolate left ghost %d at %v, its cell has %v", i, before[i], x)
		}
	}
}

// trilinear averages the coarse cells next to the fine one on each axis: a fine cell
// with an odd index coincides with one, a cell with an even index is between two.
func trilinear(coarse field, i, j, k int) float64 {
	sum := 0.0
	for _, c := range adjacent(k) {
		for _, b := range adjacent(j) {
			for _, a := range adjacent(i) {
				sum += value(coarse, a, b, c) / 8
			}
		}
	}
	return sum
}

func adjacent(i int) [2]int {
	if i%2 == 1 {
		return [2]int{i / 2, i / 2}
	}
	return [2]int{i/2 - 1, i / 2}
}

// The whole benchmark on one rank, which needs no messages.
func TestNormOnOneRank(t *testing.T) {
	p := problems[bench.S]
	h := newHierarchy(alone(), 1, p.levels(), p.smoother)
	h.ghosts = &ghosts{topo: alone()}
	v := newField(alone().local(p.edge))
	low, high := candidates(alone(), p.edge)
	place(v, low, high, low[charges-1].value, high[charges-1].value)
	wrapAll(v)
	s := &solver{p: p, v: v, levels: h}
	if err := s.iterate(t.Context(), p.iterations, nil); err != nil {
		t.Fatal(err)
	}
	norm := math.Sqrt(h.r[h.hi].sumSquares() / p.cells())
	if c := (bench.Check{Value: norm, Reference: p.norm, Tolerance: tolerance}); !c.Passed() {
		t.Errorf("norm %.13E, want %.13E", norm, p.norm)
	}
}
