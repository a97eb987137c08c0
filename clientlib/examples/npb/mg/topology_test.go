package mg

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

func topologies(t *testing.T, ranks int) []topology {
	t.Helper()
	all := make([]topology, ranks)
	for r := range all {
		topo, err := newTopology(ranks, r)
		if err != nil {
			t.Fatal(err)
		}
		all[r] = topo
	}
	return all
}

// NPB divides the last axis first.
func TestRankGrids(t *testing.T) {
	for ranks, want := range map[int]triple{1: {1, 1, 1}, 2: {1, 1, 2}, 4: {1, 2, 2}, 8: {2, 2, 2}, 16: {2, 2, 4}, 64: {4, 4, 4}} {
		if got := topologies(t, ranks)[0].ranks; got != want {
			t.Errorf("%d ranks form %v, want %v", ranks, got, want)
		}
	}
	if _, err := newTopology(6, 0); !errors.Is(err, bench.ErrRanks) {
		t.Errorf("6 ranks: %v, want ErrRanks", err)
	}
}

func TestNeighboursAreMutual(t *testing.T) {
	for ranks := 1; ranks <= 64; ranks *= 2 {
		all := topologies(t, ranks)
		for r, topo := range all {
			if topo.rank(topo.at) != r {
				t.Errorf("%d ranks: rank %d stands where %d does", ranks, r, topo.rank(topo.at))
			}
			for axis := range 3 {
				if up := topo.neighbour(axis, +1); all[up].neighbour(axis, -1) != r {
					t.Errorf("%d ranks: %d is below %d on axis %d, but not the reverse", ranks, r, up, axis)
				}
			}
		}
	}
}

func TestBlocksCoverTheGrid(t *testing.T) {
	const edge = 32
	for _, ranks := range []int{1, 2, 4, 8, 16} {
		seen := map[triple]bool{}
		for _, topo := range topologies(t, ranks) {
			n, o := topo.local(edge), topo.origin(topo.at, edge)
			for k := range n[2] {
				for j := range n[1] {
					for i := range n[0] {
						seen[triple{o[0] + i, o[1] + j, o[2] + k}] = true
					}
				}
			}
			if n[0]*n[1]*n[2]*ranks != edge*edge*edge {
				t.Errorf("%d ranks: unequal blocks %v", ranks, n)
			}
		}
		if len(seen) != edge*edge*edge {
			t.Errorf("%d ranks: %d cells, want %d", ranks, len(seen), edge*edge*edge)
		}
	}
}

func TestCoarsestLevelLeavesEveryRankACell(t *testing.T) {
	for ranks, want := range map[int]int{1: 1, 2: 1, 4: 1, 8: 1, 16: 2, 64: 2, 512: 3} {
		if got, err := topologies(t, ranks)[0].coarsest(5); err != nil || got != want {
			t.Errorf("%d ranks: level %d, %v, want %d", ranks, got, err, want)
		}
	}
	if _, err := topologies(t, 64)[0].coarsest(2); !errors.Is(err, bench.ErrRanks) {
		t.Errorf("64 ranks on a grid of edge 4: %v, want ErrRanks", err)
	}
}
