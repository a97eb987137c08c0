package jobrun

import (
	"testing"
	"time"

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

// TestSuspectsRemain: a suspected deadlock is taken back when a suspect has begun or ended a call, has left or
// has come to a later generation, and not when it seems to compute. Ranks that had left before do not count.
func TestSuspectsRemain(t *testing.T) {
	found := time.Now()
	rank := func(n int, quiet float64) why.Rank {
		return why.Rank{Rank: n, Quiet: quiet, Waits: []why.Wait{{Kind: why.Recv, Seconds: quiet}}}
	}
	s := newSuspects([]why.Rank{rank(0, 12), rank(1, 11), {Rank: 2, State: why.Left}}, found)
	computes := rank(1, 16)
	computes.Free = true
	later := rank(1, 16)
	later.Generation = 1
	for name, c := range map[string]struct {
		second why.Rank
		want   bool
	}{
		"waits":           {rank(1, 16), true},
		"seems to move":   {computes, true},
		"a call":          {rank(1, 4), false},
		"has left":        {why.Rank{Rank: 1, State: why.Left}, false},
		"next generation": {later, false},
	} {
		ranks := []why.Rank{rank(0, 17), c.second, {Rank: 2, State: why.Left}}
		if got := s.remain(ranks, found.Add(5*time.Second)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	none := newSuspects([]why.Rank{{Rank: 2, State: why.Left}}, found)
	if none.remain(nil, found) {
		t.Error("no rank waits, and the deadlock remains")
	}
}
