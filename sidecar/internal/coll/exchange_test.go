package coll

import (
	"math/rand/v2"
	"testing"
)

// TestAlltoallBetweenPods checks that an alltoall of small blocks sends each byte from a pod to
// another one once, in one round, and in few messages: P-1 if a rank has scratch memory for all
// blocks of two pods.
func TestAlltoallBetweenPods(t *testing.T) {
	for _, c := range []struct{ pods, per, messages, rounds int }{
		{16, 64, 45, 7}, {7, 5, 6, 5}, {2, 3, 2, 5}, {2, 8, 4, 5}, {4, 4, 3, 5}, {16, 4, 15, 5},
	} {
		for name, order := range orders {
			for _, block := range []int{1, 8, alltoallShortBytes} {
				p := Params{Kind: Alltoall, Count: block, Elem: 1}
				pods := order(c.pods, c.per)
				got := crossings(t, p, pods)
				bytes := int64(block * c.per * (len(pods) - c.per))
				if want := (crossing{bytes, bytes, c.messages, 1}); got != want {
					t.Errorf("%dx%d %s, blocks of %d bytes: %+v, want %+v", c.pods, c.per, name, block, got, want)
				}
				p.Size, p.Pods = len(pods), pods
				l, err := NewPlan(p)
				if err != nil || l.Rounds() != c.rounds {
					t.Errorf("%dx%d %s, blocks of %d bytes: %d rounds, %v; want %d", c.pods, c.per, name, block, l.Rounds(), err, c.rounds)
				}
			}
		}
	}
}

// TestExchangeWindows runs alltoalls in which the exchanges within a pod, and those between pods,
// are more than one round has.
func TestExchangeWindows(t *testing.T) {
	for name, pods := range map[string][]int32{
		"two large pods":         podsOf(71, func(r int) int { return r % 2 }),
		"a large and small pods": podsOf(76, func(r int) int { return max(0, r-70) / 2 }),
		"many pods":              podsOf(84, func(r int) int { return r % 41 }),
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{base: Params{Kind: Alltoall, Algorithm: TwoLevel, Size: len(pods), Count: 3, Elem: 1, Pods: pods}, seed: 3}
			s.play(t)
			l, err := NewPlan(s.params(0))
			if err != nil || l.Rounds() < 6 {
				t.Errorf("%d rounds, error %v; want several of a kind", l.Rounds(), err)
			}
		})
	}
}

// TestExchangeScratch checks the memory and the steps of alltoalls in two levels, in pods of
// different sizes in any order: if they are chosen, the contract grants the memory.
func TestExchangeScratch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	chosen := 0
	for range 400 {
		size, many := 6+rng.IntN(120), 2+rng.IntN(12)
		pods := podsOf(size, func(int) int { return rng.IntN(many) })
		for i := range rng.IntN(3) {
			pods[rng.IntN(size)] = int32(many + i) // a pod of one rank
		}
		s := story{base: Params{Kind: Alltoall, Size: size, Count: 7, Elem: 3, Pods: pods}}
		if Choose(s.base) != TwoLevel {
			continue
		}
		chosen++
		checkScratch(t, &s)
		for rank := range size {
			l, err := NewPlan(s.params(rank))
			if err != nil {
				t.Fatal(err)
			}
			for i := range l.Rounds() {
				if err := checkRound(l, i); err != nil {
					t.Fatalf("pods %v, rank %d, round %d: %v", pods, rank, i, err)
				}
			}
		}
	}
	if chosen < 390 { // the others have a pod for each rank
		t.Errorf("two levels were chosen for %d of 400 layouts", chosen)
	}
}
