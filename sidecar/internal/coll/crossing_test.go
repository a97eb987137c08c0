package coll

import (
	"fmt"
	"testing"
)

// crossing returns the most bytes that the plans of a collective send from one pod to others.
func crossing(t *testing.T, p Params, pods []int32) (most int64) {
	t.Helper()
	layout, err := NewLayout(pods)
	if err != nil {
		t.Fatal(err)
	}
	p.Size, p.Layout = len(pods), layout
	out := map[int32]int64{}
	var steps []Step
	for p.Rank = range pods {
		l, err := NewPlan(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Rounds() {
			steps = l.Round(i, steps[:0])
			for _, s := range steps {
				if s.Op == Send && pods[s.Peer] != pods[p.Rank] {
					out[pods[p.Rank]] += s.Len
				}
			}
		}
	}
	for _, n := range out {
		most = max(most, n)
	}
	return most
}

// TestAllreduceBetweenPods checks that a large allreduce sends no more than a tenth more bytes
// from any pod than it has to, 2N(P-1)/P (Patarasuk and Yuan 2009), for ranks that are pod by pod
// and in turn. A ring of all ranks, for which a client has memory from ringBytes on, sends 2N.
func TestAllreduceBetweenPods(t *testing.T) {
	for _, c := range []struct{ pods, per int }{{16, 64}, {7, 5}, {2, 3}, {128, 1}} {
		for name, of := range map[string]func(rank int) int32{
			"pod by pod": func(r int) int32 { return int32(r / c.per) },
			"in turn":    func(r int) int32 { return int32(r % c.pods) },
		} {
			pods := make([]int32, c.pods*c.per)
			for r := range pods {
				pods[r] = of(r)
			}
			for n := 64 << 10; n <= 256<<20; n *= 16 {
				t.Run(fmt.Sprintf("%dx%d/%s/%d", c.pods, c.per, name, n), func(t *testing.T) {
					most := crossing(t, Params{Kind: Allreduce, Count: n / 8, Elem: 8, Commutative: true}, pods)
					least := 2 * float64(n) * float64(c.pods-1) / float64(c.pods)
					if n >= ringBytes && n/len(pods) >= ringChunkBytes {
						least = 2 * float64(n)
					}
					if got := float64(most) / least; got > 1.1 {
						t.Errorf("%.2f times as many bytes leave a pod as have to", got)
					}
				})
			}
		}
	}
}

// TestRingOfPods runs a ring in the order of pods, for ranks that are in any order.
func TestRingOfPods(t *testing.T) {
	for name, pod := range layouts {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes[1:] {
				pods := make([]int32, size)
				for i := range pods {
					pods[i] = pod(i, size)
				}
				everyCount(t, Params{Kind: Allreduce, Algorithm: Ring, Size: size, Pods: pods})
			}
		})
	}
}
