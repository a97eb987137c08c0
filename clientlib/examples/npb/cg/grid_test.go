package cg

import (
	"errors"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// everyGrid calls f with the grids of all ranks, for a size that divides evenly
// and for sizes that do not.
func everyGrid(t *testing.T, f func(t *testing.T, n int, all []grid)) {
	t.Helper()
	for _, n := range []int{1400, 7001, 75003} {
		for ranks := 1; ranks <= 64; ranks *= 2 {
			all := make([]grid, ranks)
			for r := range all {
				g, err := newGrid(n, ranks, r)
				if err != nil {
					t.Fatal(err)
				}
				all[r] = g
			}
			f(t, n, all)
		}
	}
}

func TestBlocksCoverTheMatrixOnce(t *testing.T) {
	everyGrid(t, func(t *testing.T, n int, all []grid) {
		area := 0
		for r, g := range all {
			if g.rows.lo < 0 || g.rows.hi > n || g.cols.lo < 0 || g.cols.hi > n {
				t.Fatalf("n %d, %d ranks: rank %d has %v x %v", n, len(all), r, g.rows, g.cols)
			}
			area += g.rows.len() * g.cols.len()
			for _, h := range all[:r] {
				if overlap(g.rows, h.rows) && overlap(g.cols, h.cols) {
					t.Fatalf("n %d, %d ranks: ranks %d and %d share a part", n, len(all), h.rank, r)
				}
			}
		}
		if area != n*n {
			t.Errorf("n %d, %d ranks: blocks cover %d of %d elements", n, len(all), area, n*n)
		}
	})
}

func overlap(a, b span) bool { return a.lo < b.hi && b.lo < a.hi }

// The part that a rank keeps of a summed product must be exactly the columns of its
// transposed rank, whose transposed rank it must be.
func TestTransposeTradesRowsForColumns(t *testing.T) {
	everyGrid(t, func(t *testing.T, n int, all []grid) {
		for r, g := range all {
			other := all[g.transpose]
			if other.transpose != r {
				t.Errorf("%d ranks: %d trades with %d, which trades with %d", len(all), r, g.transpose, other.transpose)
			}
			kept := span{g.rows.lo + g.keep.lo, g.rows.lo + g.keep.hi}
			if kept != other.cols {
				t.Errorf("n %d, %d ranks: rank %d keeps %v, rank %d has columns %v", n, len(all), r, kept, g.transpose, other.cols)
			}
		}
	})
}

// Every round pairs ranks of one grid row, and each receives what the other sends.
func TestPartnersTakeWhatIsGiven(t *testing.T) {
	everyGrid(t, func(t *testing.T, _ int, all []grid) {
		for r, g := range all {
			for i, p := range g.partners {
				other := all[p]
				if other.partners[i] != r || other.row != g.row || p == r {
					t.Errorf("%d ranks, round %d: %d meets %d, which meets %d", len(all), i, r, p, other.partners[i])
				}
				if g.gives(i) != other.keep {
					t.Errorf("%d ranks, round %d: %d gives %v, %d keeps %v", len(all), i, r, g.gives(i), p, other.keep)
				}
			}
			if 1<<len(g.partners) != g.across {
				t.Errorf("%d ranks: %d rounds for a row of %d", len(all), len(g.partners), g.across)
			}
		}
	})
}

// The exchange rounds, done on slices: they must leave every rank the sum over
// its grid row in the part that it keeps.
func TestRoundsAddUpTheRow(t *testing.T) {
	everyGrid(t, func(t *testing.T, n int, all []grid) {
		if n != 1400 {
			return
		}
		parts := make([][]int, len(all))
		for r, g := range all {
			parts[r] = slices.Repeat([]int{1 << g.col}, g.rows.len())
		}
		for i := len(all[0].partners) - 1; i >= 0; i-- {
			before := make([][]int, len(all))
			for r := range all {
				before[r] = slices.Clone(parts[r])
			}
			for r, g := range all {
				p := g.partners[i]
				give := all[p].gives(i)
				for j, v := range before[p][give.lo:give.hi] {
					parts[r][g.keep.lo+j] += v
				}
			}
		}
		for r, g := range all {
			for _, v := range parts[r][g.keep.lo:g.keep.hi] {
				if v != 1<<g.across-1 {
					t.Fatalf("%d ranks: rank %d has contributions %b, want all %d", len(all), r, v, g.across)
				}
			}
		}
	})
}

func TestRanksMustBeAPowerOfTwo(t *testing.T) {
	if _, err := newGrid(1400, 6, 0); !errors.Is(err, bench.ErrRanks) {
		t.Errorf("6 ranks: %v, want ErrRanks", err)
	}
}
