package virtual

import (
	"fmt"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
)

// BenchmarkAlltoall prints the virtual time of an alltoall by each algorithm, on the machine of
// paper 000, for ranks that are pod by pod. There a message within a pod takes the time of its two
// copies only. Each benchmark needs one run: -benchtime 1x.
func BenchmarkAlltoall(b *testing.B) {
	for _, c := range []struct{ pods, per int }{{2, 3}, {2, 8}, {4, 4}, {7, 5}, {16, 16}, {16, 64}} {
		for _, n := range []int{8, 64, 256} {
			for _, a := range coll.Algorithms(coll.Alltoall) {
				if a == coll.Pairwise && c.per == 64 {
					continue // a million messages
				}
				b.Run(fmt.Sprintf("%dx%d/%d B/%v", c.pods, c.per, n, a), func(b *testing.B) {
					took := 0.0
					for b.Loop() {
						took = alltoall(b, c.pods, c.per, n, a)
					}
					b.ReportMetric(took/1000, "virtual-us")
				})
			}
		}
	}
}

// alltoall returns the time of the second alltoall of a job, in nanoseconds: the first one makes the
// connections.
func alltoall(t testing.TB, pods, per, n int, a coll.Algorithm) (took float64) {
	size := pods * per
	podOf := make([]int32, size)
	for r := range podOf {
		podOf[r] = int32(r / per)
	}
	cfg := Config{Model: platform.Rashti(), PodOf: podOf, Caps: caps(), Arena: 8192 + 6*n*size}
	cfg.Core.FastPeers = -1
	if a != coll.Auto {
		cfg.Core.Collectives = []coll.Rule{{Kind: coll.Alltoall, Algorithm: a}}
	}
	run(t, cfg, func(r *Rank) {
		call := func() { r.Wait(r.Collective(shm.CollAlltoall, 0, n, 0, n*size, n*size, n*size)) }
		call()
		r.Barrier()
		begin := r.Now()
		call()
		took = max(took, r.Now()-begin)
	})
	return took
}

// TestShortAlltoall checks that the built-in choice for small blocks takes at least a fifth less than
// the other algorithms.
func TestShortAlltoall(t *testing.T) {
	for _, c := range []struct{ pods, per, n int }{{2, 3, 64}, {2, 8, 64}, {4, 4, 64}, {7, 5, 64}, {16, 4, 8}} {
		got := alltoall(t, c.pods, c.per, c.n, coll.Auto)
		for _, a := range []coll.Algorithm{coll.Pairwise, coll.Bruck} {
			if other := alltoall(t, c.pods, c.per, c.n, a); got > 0.8*other {
				t.Errorf("%dx%d ranks, %d bytes: %.0f ns, by %v %.0f ns", c.pods, c.per, c.n, got, a, other)
			}
		}
	}
}
