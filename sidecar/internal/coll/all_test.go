package coll

import (
	"fmt"
	"testing"
)

var sizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 33}

var everyKind = []Kind{
	Barrier, Bcast, Reduce, Allreduce, Scan, ReduceScatter, Gather, Gatherv, Scatter, Scatterv,
	Allgather, Allgatherv, Alltoall, Alltoallv,
}

// roots returns all ranks of small communicators, and some of large ones.
func roots(k Kind, size int) []int {
	if !k.Rooted() {
		return []int{0}
	}
	if size > 17 {
		return []int{0, 1, size / 2, size - 2, size - 1}
	}
	all := make([]int, size)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestEveryAlgorithm runs every flat algorithm of every kind with every size, every root and a
// few counts, and in place if the kind allows it.
func TestEveryAlgorithm(t *testing.T) {
	for _, kind := range everyKind {
		for _, a := range append(Algorithms(kind), Auto) {
			if a == TwoLevel {
				continue // TestTwoLevel
			}
			t.Run(fmt.Sprintf("%v/%v", kind, a), func(t *testing.T) {
				for _, size := range sizes {
					for _, root := range roots(kind, size) {
						everyCount(t, Params{Kind: kind, Algorithm: a, Size: size, Root: root})
					}
				}
			})
		}
	}
}

// counts are numbers of elements. 67 is a prime larger than all sizes.
var counts = []int{0, 1, 5, 67}

func everyCount(t *testing.T, p Params) {
	t.Helper()
	for i, count := range counts {
		p.Count = count
		// The affine maps need elements of 8 bytes. Odd sizes reveal code that mistakes
		// elements for bytes.
		for _, ordered := range []bool{false, true} {
			p.Elem, p.Commutative = 3, true
			if ordered {
				p.Elem, p.Commutative = 8, false
			}
			for _, inPlace := range []bool{false, true} {
				if p.Kind.Rooted() && p.Size > 8 && inPlace != ((i+p.Root)%2 == 0) {
					continue // in a large communicator each root runs one of the two cases
				}
				p.InPlace = inPlace
				s := &story{base: p, ordered: ordered, seed: uint64(1000*p.Size + 10*p.Root + i)}
				if possible(s) {
					s.play(t)
				}
			}
		}
	}
}

// possible reports whether NewPlan accepts a story; TestRefusals checks that it refuses the
// others.
func possible(s *story) bool {
	p := &s.base
	if p.InPlace && (p.Kind == Alltoall || p.Kind == Alltoallv) {
		return false
	}
	if s.ordered && (!p.Kind.reducing() || p.Algorithm.reorders()) {
		return false
	}
	switch p.Kind {
	case Gatherv, Scatterv, Allgatherv, Alltoallv:
		s.counts = uneven(p.Count)
	case ReduceScatter:
		if p.Root%2 == 0 && p.Count%2 == 1 {
			s.counts = uneven(p.Count)
		}
	case Allgather:
		return p.Algorithm != RecursiveDoubling || p.Size&(p.Size-1) == 0
	}
	return true
}

// uneven returns counts from 0 to about twice count.
func uneven(count int) func(from, to int) int64 {
	return func(from, to int) int64 { return int64((from*7 + to*3) % (2*count + 1)) }
}

// longCounts returns counts around the thresholds of a kind, with elements of 8 bytes.
func longCounts(k Kind) []int {
	switch k {
	case Bcast, Allreduce:
		return []int{3001, 66_000}
	case ReduceScatter, Gather, Scatter:
		return []int{701, 9001}
	}
	return []int{2999}
}

// TestLarge runs plans on both sides of the thresholds of Auto.
func TestLarge(t *testing.T) {
	for _, kind := range everyKind {
		for _, size := range []int{8, 9} {
			for _, count := range longCounts(kind) {
				for _, ordered := range []bool{false, true} {
					s := &story{base: Params{
						Kind: kind, Size: size, Root: size / 2, Count: count, Elem: 8, Commutative: !ordered,
					}, ordered: ordered, seed: uint64(count + size)}
					if possible(s) {
						s.play(t)
					}
				}
			}
		}
	}
}

// TestPackedBlocks runs plans that have counts and no displacements.
func TestPackedBlocks(t *testing.T) {
	n := []int64{3, 0, 4, 1}
	for rank := range 4 {
		p, err := NewPlan(Params{Kind: Allgatherv, Rank: rank, Size: 4, Elem: 2, Counts: n})
		if err != nil {
			t.Fatal(err)
		}
		if in, out := p.Extents(); in != 2*n[rank] || out != 16 {
			t.Errorf("rank %d: extents %d, %d; want %d, 16", rank, in, out, 2*n[rank])
		}
		if p.out.off(2) != 6 || p.out.off(3) != 14 {
			t.Errorf("blocks 2 and 3 at %d and %d, want 6 and 14", p.out.off(2), p.out.off(3))
		}
	}
}

// layouts are the pods of ranks: contiguous, of uneven sizes, interleaved, of one rank each,
// and with numbers that are no indices.
var layouts = map[string]func(rank, size int) int32{
	"blocks of 4":  func(r, _ int) int32 { return int32(r / 4) },
	"halves":       func(r, n int) int32 { return int32(2 * r / n) },
	"round robin":  func(r, _ int) int32 { return int32(r % 3) },
	"one and rest": func(r, _ int) int32 { return int32(min(r, 1)) },
	"rest and one": func(r, n int) int32 { return int32((r + 1) / n) },
	"each its own": func(r, _ int) int32 { return int32(r) },
	"any order":    func(r, n int) int32 { return int32(r * r * r % (n/2 + 1) % 4) },
	"odd numbers":  func(r, _ int) int32 { return int32(-1000 * (r * r % 5)) },
}

func TestTwoLevel(t *testing.T) {
	for name, pod := range layouts {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes[1:] {
				pods := make([]int32, size)
				for i := range pods {
					pods[i] = pod(i, size)
				}
				l, err := NewLayout(pods)
				if err != nil {
					t.Fatal(err)
				}
				if l.pods() < 2 {
					continue
				}
				twoLevelKinds(t, Params{Algorithm: TwoLevel, Size: size, Pods: pods, Layout: l})
			}
		})
	}
}

func twoLevelKinds(t *testing.T, p Params) {
	t.Helper()
	for _, kind := range []Kind{Barrier, Bcast, Reduce, Allreduce, Allgather, Alltoall} {
		if p.Kind = kind; kind == Allgather && !p.Layout.gathers() || kind == Alltoall && !p.Layout.pays() {
			continue // TestRefusals
		}
		for _, root := range roots(kind, p.Size) {
			p.Root = root
			everyCount(t, p)
		}
	}
}

// TestTwoLevelLarge runs the long algorithms among the leaders.
func TestTwoLevelLarge(t *testing.T) {
	pods := make([]int32, 18)
	for i := range pods {
		pods[i] = int32(i / 2)
	}
	for _, kind := range []Kind{Bcast, Reduce, Allreduce} {
		for _, count := range []int{5_000, 35_000} {
			p := Params{Kind: kind, Algorithm: TwoLevel, Size: 18, Root: 7, Count: count, Elem: 8, Commutative: true, Pods: pods}
			(&story{base: p, seed: 5}).play(t)
		}
	}
}

// TestShares runs an allreduce of long vectors in the shares of two levels, for ranks that are pod
// by pod and in turn, none, half or all of which are in place, and for counts that the ranks do not
// divide.
func TestShares(t *testing.T) {
	for _, c := range []struct{ pods, per int }{{2, 2}, {3, 2}, {2, 3}, {3, 3}, {2, 5}, {7, 2}} {
		ranks := c.pods * c.per
		pods := make([]int32, ranks)
		for _, rest := range []int{0, 1, ranks - 1} {
			for places := range 3 {
				for r := range pods {
					if pods[r] = int32(r / c.per); places == 1 {
						pods[r] = int32(r % c.pods)
					}
				}
				count := ranks*ranks + rest
				p := Params{Kind: Allreduce, Algorithm: TwoLevel, Size: ranks, Count: count, Elem: ringBytes/count + 1, Commutative: true, Pods: pods}
				s := &story{base: p, seed: uint64(count), places: places}
				s.play(t)
				plan, err := NewPlan(s.params(0))
				if err != nil || plan.column.size == 0 || plan.Rounds() > 2*(ranks-1) {
					t.Errorf("%+v: column %v, %d rounds, error %v", c, plan.column, plan.Rounds(), err)
				}
			}
		}
	}
}
