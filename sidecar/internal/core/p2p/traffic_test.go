package p2p

import (
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// TestTalks compares a row with a map.
func TestTalks(t *testing.T) {
	var row traffic
	want := map[uint32]ranks.Traffic{}
	draw := rand.New(rand.NewPCG(1, 2))
	var rest ranks.Traffic
	for range 20_000 {
		dst, n := draw.Uint32N(8000), draw.Uint64N(100)
		if _, known := want[dst]; !known && len(want) == partnersMax {
			rest.Add(n)
		} else {
			k := want[dst]
			k.Add(n)
			want[dst] = k
		}
		row.add(dst, n)
	}
	if row.rest != rest || rest.Messages == 0 {
		t.Errorf("beyond the bound: %v, want %v", row.rest, rest)
	}
	for _, k := range row.cells {
		if k.Messages != 0 && want[k.Dst] != k.Traffic {
			t.Errorf("to %d: %v, want %v", k.Dst, k.Traffic, want[k.Dst])
		}
		if k.Messages != 0 {
			delete(want, k.Dst)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d partners are missing", len(want))
	}
	if n := testing.AllocsPerRun(100, func() { row.add(7, 1) }); n != 0 {
		t.Errorf("%v allocations for a known partner", n)
	}
}
