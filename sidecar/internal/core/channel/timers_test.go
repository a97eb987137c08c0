package channel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

func TestTimersComeInOrder(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	var h Timers
	var want []int64
	for range 5000 {
		if len(want) > 0 && draw.IntN(3) == 0 {
			if at, _ := h.First(); at != want[0] {
				t.Fatalf("the first timer is at %d, want %d", at, want[0])
			}
			h.Pop()
			want = want[1:]
			continue
		}
		at := draw.Int64N(1000)
		h.Push(at, link.Peer(at))
		i, _ := slices.BinarySearch(want, at)
		want = slices.Insert(want, i, at)
	}
}
