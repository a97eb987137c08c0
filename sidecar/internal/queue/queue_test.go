package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFairBetweenOwners checks that an owner with many items gets no more turns than an
// owner with a single one, and that its own items take turns, too: all of them, or the
// oldest few.
func TestFairBetweenOwners(t *testing.T) {
	for _, x := range []struct {
		perOwner int
		want     func(i int) int // turns of item i of the busy owner, of 200
	}{
		{0, func(int) int { return 2 }},
		{4, func(i int) int { return map[bool]int{true: 50}[i < 4] }},
	} {
		f := Fair[uint32, int]{PerOwner: x.perOwner}
		for i := range 100 {
			f.Add(1, i)
		}
		f.Add(2, 1000)
		turns := map[int]int{}
		for range 400 {
			turns[*f.Turn()]++
			f.EndTurn(true)
		}
		if turns[1000] != 200 {
			t.Errorf("perOwner %d: the single item had %d turns of 400, want 200", x.perOwner, turns[1000])
		}
		for i := range 100 {
			if turns[i] != x.want(i) {
				t.Errorf("perOwner %d: item %d of the busy owner had %d turns, want %d", x.perOwner, i, turns[i], x.want(i))
			}
		}
	}
}

// TestFairServesAll checks that all other items are served in turn whatever is added,
// ends and is removed, and that an empty queue retains little memory.
func TestFairServesAll(t *testing.T) {
	for _, perOwner := range []int{0, 1, 4} {
		rng := rand.New(rand.NewPCG(1, 2))
		f := Fair[uint32, uint64]{PerOwner: perOwner}
		left := map[uint64]int{} // turns that each item still needs
		turn := func() {
			id := *f.Turn()
			if left[id] == 0 {
				t.Fatalf("perOwner %d: item %d has a turn after its end", perOwner, id)
			}
			left[id]--
			f.EndTurn(left[id] > 0)
			if left[id] == 0 {
				delete(left, id)
			}
		}
		for id := range uint64(20_000) {
			if rng.IntN(3) > 0 {
				left[id] = 1 + rng.IntN(4)
				f.Add(uint32(rng.IntN(7)), id)
			}
			if !f.Empty() {
				turn()
			}
			if rng.IntN(100) == 0 {
				f.RemoveFunc(func(e *uint64) bool {
					if *e%5 != 0 {
						return false
					}
					delete(left, *e)
					return true
				})
			}
		}
		for !f.Empty() {
			turn()
		}
		if f.Turn() != nil {
			t.Error("an empty queue has a turn")
		}
		if len(left) > 0 {
			t.Errorf("perOwner %d: %d items were never served: %.60s", perOwner, len(left), fmt.Sprint(left))
		}
		for _, s := range f.spare {
			if n := cap(s.list.list); n > fifoKeep {
				t.Errorf("an empty share keeps room for %d items", n)
			}
		}
	}
}

// TestFIFO checks that a FIFO behaves as a slice, and retains no element that was
// removed.
func TestFIFO(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var q FIFO[*int]
	var want []*int
	for step := range 20_000 {
		at := 0
		if len(want) > 0 {
			at = rng.IntN(len(want))
		}
		switch k := rng.IntN(10); {
		case k < 4:
			q.Push(new(step))
			want = append(want, q.Rest()[q.Len()-1])
		case k == 4:
			q.Unshift(new(step))
			want = slices.Insert(want, 0, *q.First())
		case len(want) == 0:
		case k < 8:
			if e := q.Pop(); e != want[0] {
				t.Fatalf("step %d: got %d, want %d", step, *e, *want[0])
			}
			want = want[1:]
		case k == 8 && step%2 == 0:
			q.Remove(at)
			want = slices.Delete(want, at, at+1)
		case k == 8:
			if e := q.PopAt(at); e != want[at] {
				t.Fatalf("step %d: PopAt returns %d, want %d", step, *e, *want[at])
			}
			want = slices.Delete(want, at, at+1)
		case step%50 == 0:
			odd := func(e *int) bool { return *e%2 == 1 }
			q.RemoveFunc(func(e **int) bool { return odd(*e) })
			want = slices.DeleteFunc(want, odd)
		}
		if !slices.Equal(q.Rest(), want) {
			t.Fatalf("step %d: %d elements, want %d, or other ones", step, q.Len(), len(want))
		}
		for i, e := range q.list[:cap(q.list)] {
			if e != nil && (i < q.next || i >= len(q.list)) {
				t.Fatalf("step %d: %d is retained at %d, outside of the queue (%d to %d)", step, *e, i, q.next, len(q.list))
			}
		}
	}
}

// TestFIFOStaysSmall checks that a queue that is never empty does not grow.
func TestFIFOStaysSmall(t *testing.T) {
	var q FIFO[int]
	const length = 1000
	for i := range length {
		q.Push(i)
	}
	for i := range 10 * length {
		if e := q.Pop(); e != i {
			t.Fatalf("got %d, want %d", e, i)
		}
		q.Push(length + i)
	}
	if len(q.list) > 2*length {
		t.Errorf("room for %d elements, %d are used", len(q.list), length)
	}
}

// TestSteadyStateAllocatesNothing checks that memory is reused.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	var f Fair[uint32, uint64]
	turn := func() {
		for i := range uint32(4) {
			f.Add(i, 1)
		}
		for !f.Empty() {
			f.Turn()
			f.EndTurn(false)
		}
	}
	turn()
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
