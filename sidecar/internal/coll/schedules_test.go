package coll

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"testing"
)

// plansOf has a hash of the plans for each number of schedules. A commit that changes plans adds a
// line with the number that it raises Schedules to: the line of an earlier number is what other
// builds plan, and stays.
var plansOf = [...]uint64{
	1: 0xb6c3715aa73997e4,
	2: 0xbee12256c502d97e,
}

// TestSchedules checks that no plan and no choice differ from those of the number Schedules.
func TestSchedules(t *testing.T) {
	h := newPlanHash(t)
	h.all()
	const last = len(plansOf) - 1
	if got := h.sum.Sum64(); Schedules != last || plansOf[last] != got {
		t.Errorf("the plans of Schedules %d have the hash %#x, want %#x, that of %d: if the plans have changed, raise Schedules, and add the hash to plansOf",
			Schedules, got, plansOf[last], last)
	}
	for i := range plansOf[:last] {
		if i > 0 && plansOf[i] == plansOf[i+1] {
			t.Errorf("the schedules %d and %d have the same plans", i, i+1)
		}
	}
	t.Logf("%d plans, %d steps", h.plans, h.steps)
}

// planHash is a hash of plans.
type planHash struct {
	t            *testing.T
	sum          hash.Hash64
	round        []Step
	plans, steps int
}

func newPlanHash(t *testing.T) *planHash { return &planHash{t: t, sum: fnv.New64a()} }

func (h *planHash) write(values ...int64) {
	var b [8]byte
	for _, v := range values {
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		_, _ = h.sum.Write(b[:]) // never fails
	}
}

// shapesOf returns the distributions of ranks over pods for which plans are hashed.
func shapesOf(size int) (all [][]int32) {
	pairs := make([]int32, size) // with 36 ranks, leaders have long algorithms
	for i := range pairs {
		pairs[i] = int32(i / 2)
	}
	all = [][]int32{nil, pairs}
	if size == 36 {
		return all
	}
	for _, name := range []string{"blocks of 4", "halves", "round robin", "rest and one", "each its own"} {
		pods := make([]int32, size)
		for i := range pods {
			pods[i] = layouts[name](i, size)
		}
		all = append(all, pods)
	}
	return all
}

// all adds plans for a spread of ranks, placements, sizes, operations, roots and algorithms.
func (h *planHash) all() {
	for _, size := range []int{2, 3, 4, 5, 7, 8, 12, 16, 17, 36} {
		for _, pods := range shapesOf(size) {
			var layout *Layout
			if pods != nil {
				var err error
				if layout, err = NewLayout(pods); err != nil {
					h.t.Fatal(err)
				}
			}
			for _, kind := range everyKind {
				h.kind(Params{Kind: kind, Size: size, Layout: layout})
			}
		}
	}
	// Choices alone, around all thresholds.
	for _, size := range []int{64, 100, 1000} {
		for _, pods := range shapesOf(size) {
			for _, kind := range everyKind {
				h.choices(Params{Kind: kind, Size: size, Pods: pods})
			}
		}
	}
}

// kind adds plans of a kind by each of its algorithms, by choice, and by the choice of rules.
func (h *planHash) kind(p Params) {
	h.choices(p)
	table := tableOf(h.t, Rule{Kind: p.Kind, Bytes: 4096, Ranks: 8, Algorithm: algorithmsOf[p.Kind][0]}, Rule{Kind: p.Kind, Pods: 2, Algorithm: algorithmsOf[p.Kind][len(algorithmsOf[p.Kind])-1]})
	for _, p.Root = range []int{0, 1, p.Size - 1} {
		if p.Root > 0 && (!p.Kind.Rooted() || p.Root == 1 && p.Size == 2) {
			continue
		}
		for _, p.Commutative = range []bool{true, false} {
			if !p.Commutative && !p.Kind.reducing() {
				continue
			}
			for _, count := range []int{1, 67, 3001, 40_000, 300_000} {
				if count > 67 && p.Root == 1 {
					continue // a root that is neither the first nor the last
				}
				p.Count, p.Elem = count, 8
				for _, p.Algorithm = range append(Algorithms(p.Kind), Auto) {
					h.ranks(p)
				}
				p.Algorithm, p.Table = Auto, table
				h.ranks(p)
				p.Table = nil
			}
		}
	}
}

// ranks adds the plans of all ranks of a small communicator, and of some of a large one.
func (h *planHash) ranks(p Params) {
	s := &story{base: p}
	switch p.Kind {
	case Gatherv, Scatterv, Allgatherv, Alltoallv:
		s.counts = uneven(p.Count % 1000)
	case ReduceScatter:
		if p.Count == 67 {
			s.counts = uneven(p.Count)
		}
	}
	for rank := range p.Size {
		if p.Size > 8 && rank%(p.Size/6) != 1 && rank != p.Root && rank != p.Size-1 {
			continue
		}
		h.plan(s.params(rank))
	}
}

// plan adds one plan, or that there is none.
func (h *planHash) plan(p Params) {
	l, err := NewPlan(p)
	if err != nil {
		h.write(-1)
		return
	}
	h.plans++
	h.write(int64(l.Algorithm()), int64(l.Rounds()))
	for i := range l.Rounds() {
		h.round = l.Round(i, h.round[:0])
		for _, s := range h.round {
			reversed := int64(0)
			if s.Reversed {
				reversed = 1
			}
			h.write(int64(s.Op), reversed, int64(s.Dst), int64(s.Src), int64(s.Peer), int64(s.Tag), s.DstOff, s.SrcOff, s.Len)
		}
		h.steps += len(h.round)
	}
}

// choices adds what is chosen for sizes on both sides of all powers of two and of their thirds.
func (h *planHash) choices(p Params) {
	p.Counts, p.Elem = nil, 1
	switch p.Kind {
	case Gatherv, Scatterv, Allgatherv, Alltoallv:
		return // one algorithm each
	}
	for _, p.Commutative = range []bool{true, false} {
		for shift := range 27 {
			for _, p.Count = range []int{1<<shift - 1, 1 << shift, 1<<shift + 1, 1 << shift / 3 * 4} {
				h.write(int64(Choose(p)))
			}
		}
	}
}

// TestOtherSchedulesAreSeen checks that the hash differs if one step or one choice does.
func TestOtherSchedulesAreSeen(t *testing.T) {
	hashOf := func(p Params) uint64 {
		h := newPlanHash(t)
		h.choices(p)
		h.ranks(p)
		return h.sum.Sum64()
	}
	p := Params{Kind: Bcast, Size: 8, Count: 100, Elem: 1}
	before := hashOf(p)
	kept := builtin[Bcast]
	defer func() { builtin[Bcast] = kept }()
	builtin[Bcast] = []row{{algorithm: ScatterAllgather, from: bcastLongRanks, bytes: 99}, {algorithm: Binomial}}
	if hashOf(p) == before {
		t.Error("another choice has the same hash")
	}
	p.Root = 1
	builtin[Bcast] = kept
	if hashOf(p) == before {
		t.Error("other steps have the same hash")
	}
}
