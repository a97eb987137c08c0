package mg

import (
	"cmp"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"
)

// sortedCells returns all values with their global positions, sorted: the slow way to
// find the charges.
func sortedCells(edge int) []candidate {
	s := randlc.New(randlc.Seed)
	all := make([]candidate, edge*edge*edge)
	for i := range all {
		all[i] = candidate{s.Next(), i}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.value, b.value) })
	return all
}

// distributed computes what the ranks compute, without messages: the charge of each
// global position.
func distributed(t *testing.T, ranks, edge int) map[int]float64 {
	t.Helper()
	var lows, highs []float64
	all := topologies(t, ranks)
	for _, topo := range all {
		low, high := candidates(topo, edge)
		for i := range charges {
			lows, highs = append(lows, low[i].value), append(highs, high[i].value)
		}
	}
	lowest, highest := limits(lows, highs)
	got := map[int]float64{}
	for _, topo := range all {
		v := newField(topo.local(edge))
		low, high := candidates(topo, edge)
		place(v, low, high, lowest, highest)
		o := topo.origin(topo.at, edge)
		for k := 1; k <= v.n[2]; k++ {
			for j := 1; j <= v.n[1]; j++ {
				for i, x := range v.row(j, k)[1 : v.n[0]+1] {
					if x != 0 {
						got[((o[2]+k-1)*edge+o[1]+j-1)*edge+o[0]+i] = x
					}
				}
			}
		}
		if sum := v.sumSquares(); sum > 2*charges {
			t.Errorf("%d ranks: one has %v charges", ranks, sum)
		}
	}
	return got
}

func TestChargesDoNotDependOnTheRanks(t *testing.T) {
	for _, edge := range []int{8, 32} {
		cells := sortedCells(edge)
		for ranks := 1; ranks <= 64; ranks *= 2 { // 64 ranks have 8 cells each of edge 8
			got := distributed(t, ranks, edge)
			if len(got) != 2*charges {
				t.Errorf("edge %d, %d ranks: %d charges, want %d", edge, ranks, len(got), 2*charges)
			}
			for i := range charges {
				if low := cells[i].place; got[low] != -1 {
					t.Errorf("edge %d, %d ranks: cell %d has %v, want -1", edge, ranks, low, got[low])
				}
				if high := cells[len(cells)-1-i].place; got[high] != +1 {
					t.Errorf("edge %d, %d ranks: cell %d has %v, want +1", edge, ranks, high, got[high])
				}
			}
		}
	}
}

func TestInsertKeepsOrder(t *testing.T) {
	s := randlc.New(randlc.SeedEP)
	low, high := fill(candidate{1, -1}), fill(candidate{0, -1})
	var all []float64
	for i := range 500 {
		x := s.Next()
		all = append(all, x)
		if x < low[charges-1].value {
			insert(low, candidate{x, i}, +1)
		}
		if x > high[charges-1].value {
			insert(high, candidate{x, i}, -1)
		}
	}
	slices.Sort(all)
	for i := range charges {
		if low[i].value != all[i] || high[i].value != all[len(all)-1-i] {
			t.Errorf("extreme %d: %v and %v, want %v and %v", i, low[i].value, high[i].value, all[i], all[len(all)-1-i])
		}
	}
}
