package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A rank with many things gets no more turns than one with a single one, and
// its own things take turns, too.
func TestRotaIsFairBetweenRanks(t *testing.T) {
	var r rota
	for i := range 100 {
		r.add(1, entry{entrySend, uint64(i)})
	}
	r.add(2, entry{entrySend, 1000})
	turns := map[uint64]int{}
	for range 400 {
		turns[r.turn().id]++
		r.pass(true)
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
// rota keeps little.
func TestRotaServesAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r rota
	left := map[uint64]int{} // turns that each is still to have
	next := uint64(0)
	for range 20_000 {
		if rng.IntN(3) > 0 {
			next++
			left[next] = 1 + rng.IntN(4)
			r.add(uint32(rng.IntN(7)), entry{entryGot, next})
		}
		if r.empty() {
			continue
		}
		id := r.turn().id
		if left[id] == 0 {
			t.Fatalf("thing %d has a turn after its end", id)
		}
		left[id]--
		if left[id] == 0 {
			delete(left, id)
			r.pass(false)
		} else {
			r.pass(true)
		}
	}
	for !r.empty() {
		id := r.turn().id
		left[id]--
		r.pass(left[id] > 0)
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
func TestRotaAllocatesNothing(t *testing.T) {
	var r rota
	turn := func() {
		for i := range uint32(4) {
			r.add(i, entry{entrySend, 1})
		}
		for !r.empty() {
			r.turn()
			r.pass(false)
		}
	}
	turn()
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
