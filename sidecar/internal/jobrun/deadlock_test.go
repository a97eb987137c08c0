package jobrun

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// TestMayFail: ranks of an MPI that wait for each other alone fail no job, since a message of the
// MPI itself may release them; if all ranks wait, there is no rank that could send one.
func TestMayFail(t *testing.T) {
	native, own := []why.Rank{{Rank: 0}, {Rank: 1}}, []why.Rank{{Rank: 0}, {Rank: 1, Own: 2}}
	for _, c := range []struct {
		ranks []why.Rank
		is    stillness
		want  bool
	}{{native, knotted, true}, {own, knotted, false}, {native, stuck, true}, {own, stuck, true}} {
		if got := mayFail(c.ranks, c.is); got != c.want {
			t.Errorf("%v, state %d: %v", c.ranks, c.is, got)
		}
	}
}
