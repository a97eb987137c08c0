package ranks

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A rank with many things gets no more turns than one with a single one, and
// its own things take turns, too.
func TestFairQueueIsFairBetweenRanks(t *testing.T) {
	var r FairQueue[uint64]
	for i := range 100 {
		r.Add(1, uint64(i))
	}
	r.Add(2, 1000)
	turns := map[uint64]int{}
	for range 400 {
		turns[r.Turn()]++
		r.Pass(true)
	}
	if turns[1000] != 200 {
		t.Errorf("the single one had %d turns of 400, want 200", turns[1000])
	}
	for i := range uint64(100) {
		if turns[i] != 2 {
			t.Errorf("thing %d of the busy rank had %d turns, want 2", i, turns[i])
		}
	}
}

// Whatever is added and ends when, all of it is served, in turn, and an empty
// queue keeps little.
func TestFairQueueServesAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r FairQueue[uint64]
	left := map[uint64]int{} // turns that each is still to have
	next := uint64(0)
	for range 20_000 {
		if rng.IntN(3) > 0 {
			next++
			left[next] = 1 + rng.IntN(4)
			r.Add(uint32(rng.IntN(7)), next)
		}
		if r.Empty() {
			continue
		}
		id := r.Turn()
		if left[id] == 0 {
			t.Fatalf("thing %d has a turn after its end", id)
		}
		left[id]--
		if left[id] == 0 {
			delete(left, id)
			r.Pass(false)
		} else {
			r.Pass(true)
		}
	}
	for !r.Empty() {
		id := r.Turn()
		left[id]--
		r.Pass(left[id] > 0)
		if left[id] == 0 {
			delete(left, id)
		}
	}
	if len(left) > 0 {
		t.Errorf("%d things were never served: %v", len(left), fmt.Sprint(left)[:60])
	}
	for _, s := range r.spare {
		if n := cap(s.list.list); n > fifoKeep {
			t.Errorf("an empty share keeps room for %d things", n)
		}
	}
}

// A steady state allocates nothing.
func TestFairQueueAllocatesNothing(t *testing.T) {
	var r FairQueue[uint64]
	turn := func() {
		for i := range uint32(4) {
			r.Add(i, 1)
		}
		for !r.Empty() {
			r.Turn()
			r.Pass(false)
		}
	}
	turn()
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
