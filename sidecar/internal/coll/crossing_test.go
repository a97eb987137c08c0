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

// TestAllgatherBetweenPods checks that an allgather whose ranks are pod by pod sends no more bytes
// from any pod than it has to, the vector without the blocks of one pod, and has few rounds.
func TestAllgatherBetweenPods(t *testing.T) {
	for _, c := range []struct{ pods, per, rounds int }{{16, 64, 1 + 4 + 6}, {7, 5, 1 + 6 + 3}, {2, 3, 1 + 1 + 2}} {
		pods := make([]int32, c.pods*c.per)
		for r := range pods {
			pods[r] = int32(r / c.per)
		}
		for _, block := range []int{8, 1 << 10, 32 << 10} {
			p := Params{Kind: Allgather, Count: block, Elem: 1}
			most, least := crossing(t, p, pods), int64(block)*int64(len(pods)-c.per)
			if most > least {
				t.Errorf("%d pods of %d ranks, blocks of %d bytes: %d bytes leave a pod, want %d", c.pods, c.per, block, most, least)
			}
			p.Size, p.Pods = len(pods), pods
			l, err := NewPlan(p)
			if err != nil || l.Rounds() != c.rounds || l.Scratch() != 0 {
				t.Errorf("%d pods of %d ranks, blocks of %d bytes: %d rounds, %d bytes of scratch, %v; want %d rounds and none", c.pods, c.per, block, l.Rounds(), l.Scratch(), err, c.rounds)
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
