package lu

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

func TestRankGrids(t *testing.T) {
	for ranks, want := range map[int][2]int{1: {1, 1}, 2: {1, 2}, 4: {2, 2}, 6: {2, 3}, 7: {1, 7}, 12: {3, 4}, 16: {4, 4}} {
		if got := divide(ranks); got != want {
			t.Errorf("%d ranks form %v, want %v", ranks, got, want)
		}
	}
	if _, err := newDomain(12, 7, 0); !errors.Is(err, bench.ErrRanks) {
		t.Errorf("12 points among 7 ranks in a row: %v, want ErrRanks", err)
	}
}

// Every point that is computed belongs to one rank, and a rank is a neighbour of its
// neighbours.
func TestDomainsTileTheCube(t *testing.T) {
	const edge = 13
	for _, ranks := range []int{1, 2, 4, 6, 9} {
		var all []domain
		for r := range ranks {
			d, err := newDomain(edge, ranks, r)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		seen := map[[3]int]int{}
		for r, d := range all {
			g := newGeometry(d)
			d.interior(g, func(at, n, j, k int) {
				if at != g.at(d.start[0], j, k) || at+n > g.points {
					t.Errorf("%d ranks, rank %d: row %d of plane %d is at %d", ranks, r, j, k, at)
				}
				for i := range n {
					seen[d.global(d.start[0]+i, j, k)]++
				}
			})
			for axis := range 2 {
				if up := d.neighbour(axis, +1); up != none && all[up].neighbour(axis, -1) != r {
					t.Errorf("%d ranks: %d is below %d on axis %d, but not the reverse", ranks, r, up, axis)
				}
			}
		}
		if want := (edge - 2) * (edge - 2) * (edge - 2); len(seen) != want {
			t.Errorf("%d ranks compute %d points, want %d", ranks, len(seen), want)
		}
		for g, n := range seen {
			if n != 1 || min(g[0], g[1], g[2]) < 1 || max(g[0], g[1], g[2]) > edge-2 {
				t.Errorf("%d ranks: point %v computed %d times", ranks, g, n)
			}
		}
	}
}
