package coll

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRefusals(t *testing.T) {
	ok := Params{Kind: Allreduce, Size: 4, Count: 3, Elem: 8, Commutative: true}
	cases := []struct {
		change func(p *Params)
		says   string
	}{
		{func(p *Params) { p.Kind = 0 }, "no collective operation"},
		{func(p *Params) { p.Kind = Alltoallv + 1 }, "no collective operation"},
		{func(p *Params) { p.Size = 0 }, "Size 0"},
		{func(p *Params) { p.Size = MaxRanks + 1 }, "Size"},
		{func(p *Params) { p.Rank = 4 }, "Rank 4"},
		{func(p *Params) { p.Rank = -1 }, "Rank -1"},
		{func(p *Params) { p.Kind, p.Root = Bcast, 4 }, "Root 4"},
		{func(p *Params) { p.Count = -1 }, "Count -1"},
		{func(p *Params) { p.Count = math.MaxInt64 / 8 }, "Count"},
		{func(p *Params) { p.Kind, p.Count = Alltoall, MaxBytes/16 }, "Count"},
		{func(p *Params) { p.Elem = 0 }, "Elem 0"},
		{func(p *Params) { p.Elem = MaxElem + 1 }, "Elem"},
		{func(p *Params) { p.Kind, p.InPlace = Alltoall, true }, "no in-place form"},
		{func(p *Params) { p.Pods = []int32{1, 2} }, "Pods has 2 entries"},
		{func(p *Params) { p.Layout, _ = NewLayout([]int32{1}) }, "Layout is for 1 ranks"},
		{func(p *Params) { p.Algorithm = Dissemination }, "cannot be done by dissemination"},
		{func(p *Params) { p.Algorithm = TwoLevel }, "more than one pod"},
		{func(p *Params) { p.Kind, p.Algorithm, p.Pods = Allgather, TwoLevel, []int32{1, 2, 1, 2} }, "in the order of their pods"},
		{func(p *Params) { p.Kind, p.Algorithm, p.Pods = Alltoall, TwoLevel, []int32{1, 2, 3, 4} }, "several ranks in a pod"},
		{func(p *Params) { p.Algorithm, p.Commutative = Ring, false }, "order of operands"},
		{func(p *Params) { p.Kind, p.Size, p.Algorithm = Allgather, 6, RecursiveDoubling }, "power of two"},
		{func(p *Params) { p.Kind, p.Size, p.Algorithm = Alltoall, packedRanksMax+1, Bruck }, "at most 4096"},
		{func(p *Params) { p.Kind = Allgatherv }, "Counts has 0 entries"},
		{func(p *Params) { p.Kind, p.Counts = Allgatherv, []int64{1, 1, -1, 1} }, "Counts[2] is -1"},
		{func(p *Params) { p.Kind, p.Counts = Allgatherv, []int64{1, 1, MaxBytes, 1} }, "Counts[2]"},
		{func(p *Params) { p.Kind, p.Counts, p.Displs = Gatherv, make([]int64, 4), []int64{0} }, "Displs has 1 entries"},
		{func(p *Params) { p.Kind, p.Counts, p.Displs = Scatterv, make([]int64, 4), []int64{0, -1, 0, 0} }, "Displs[1] is -1"},
		{func(p *Params) {
			p.Kind, p.SCounts, p.RCounts = Alltoallv, make([]int64, 4), make([]int64, 4)
			p.RDispls = []int64{0, 0, 0, math.MaxInt64}
		}, "RDispls[3]"},
		{func(p *Params) { p.Kind, p.SCounts = Alltoallv, make([]int64, 4) }, "RCounts has 0 entries"},
		{func(p *Params) {
			p.Kind, p.Elem, p.Commutative = ReduceScatter, 1, false
			p.Size = 1 << 10
			p.Counts = make([]int64, p.Size)
			p.Counts[0] = MaxBytes
		}, "Scratch"},
	}
	if _, err := NewPlan(ok); err != nil {
		t.Fatalf("the valid Params were refused: %v", err)
	}
	for _, c := range cases {
		p := ok
		c.change(&p)
		if _, err := NewPlan(p); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("NewPlan(%+v) = %v; want an error that says %q", p, err, c.says)
		}
		if _, err := ScratchBytes(p); err == nil {
			t.Errorf("ScratchBytes(%+v) accepted what NewPlan refuses", p)
		}
	}
}

// TestDeadlockIsSeen tests the machine itself: it must detect plans that do not belong
// together.
func TestDeadlockIsSeen(t *testing.T) {
	m := newMachine(1, func(_, _ []byte, _ bool) {})
	for rank := range 3 {
		p, err := NewPlan(Params{Kind: Bcast, Rank: rank, Size: 3, Root: rank % 2, Count: 1, Elem: 1})
		if err != nil {
			t.Fatal(err)
		}
		m.add(p, false)
	}
	if err := m.run(); err == nil {
		t.Fatal("ranks with different roots finished a broadcast")
	}
}

// TestSameBits adds floats whose sum depends on the order, and compares the results of all
// ranks.
func TestSameBits(t *testing.T) {
	pods := make([]int32, 13)
	for i := range pods {
		pods[i] = int32(i % 3)
	}
	for _, a := range Algorithms(Allreduce) {
		m := newMachine(3, func(dst, src []byte, reversed bool) {
			f := Apply
			if reversed {
				f = ApplyReversed
			}
			if err := f(Sum, Float32, dst, src); err != nil {
				t.Fatal(err)
			}
		})
		for rank := range pods {
			p, err := NewPlan(Params{
				Kind: Allreduce, Algorithm: a, Rank: rank, Size: len(pods), Count: 41, Elem: 4, Commutative: true, Pods: pods,
			})
			if err != nil {
				t.Fatal(err)
			}
			s := m.add(p, false)
			for i := range 41 {
				x := float32(math.Pow(-1.7, float64((rank*5+i)%23)))
				if i == 40 && rank > 10 {
					x = math.Float32frombits(0x7fc00000 | uint32(rank)) // a NaN with a payload of its own
				}
				binary.LittleEndian.PutUint32(s.bufs[In][4*i:], math.Float32bits(x))
			}
		}
		if err := m.run(); err != nil {
			t.Fatalf("%v: %v", a, err)
		}
		for rank, s := range m.ranks {
			if !bytes.Equal(s.bufs[Out], m.ranks[0].bufs[Out]) {
				t.Errorf("%v: rank %d and rank 0 differ", a, rank)
			}
		}
	}
}

// TestAutoAgrees checks that the choice does not depend on parameters that may differ between
// ranks, without rules and with one for each algorithm.
func TestAutoAgrees(t *testing.T) {
	for _, kind := range everyKind {
		autoAgrees(t, kind, nil)
		for _, a := range Algorithms(kind) {
			autoAgrees(t, kind, tableOf(t, Rule{Kind: kind, Bytes: 100_000, Algorithm: a}))
		}
	}
}

func autoAgrees(t *testing.T, kind Kind, table *Table) {
	t.Helper()
	pods := []int32{0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3}
	for _, count := range []int{1, 300, 10_000, 1 << 20} {
		s := story{base: Params{Kind: kind, Size: 12, Root: 3, Count: count, Elem: 8, Commutative: true, Pods: pods, Table: table}, counts: uneven(count)}
		first := Choose(s.params(0))
		if first == Auto {
			t.Errorf("%v of %d: Choose returned Auto", kind, count)
		}
		for rank := range 12 {
			p := s.params(rank)
			p.InPlace = rank%2 == 0 && kind < Alltoall
			if a := Choose(p); a != first {
				t.Errorf("%v of %d: rank %d chooses %v, rank 0 %v", kind, count, rank, a, first)
			}
			plan, err := NewPlan(p)
			if err != nil || plan.Algorithm() != first {
				t.Errorf("%v of %d: rank %d: plan %+v, error %v; want algorithm %v", kind, count, rank, plan, err, first)
			}
		}
	}
}

// TestAutoKeepsOrder checks that an operation that is not commutative gets an algorithm that
// accepts it, for all sizes and pods, also if a rule names another one.
func TestAutoKeepsOrder(t *testing.T) {
	pods := []int32{0, 0, 0, 1, 1, 1, 2, 2}
	for _, kind := range []Kind{Reduce, Allreduce, Scan, ReduceScatter} {
		for count := 1; count < 1<<24; count *= 4 {
			for _, rule := range Algorithms(kind) {
				p := Params{Kind: kind, Size: 8, Count: count, Elem: 8, Pods: pods}
				for range 2 {
					if a := Choose(p); a.reorders() {
						t.Errorf("%v of %d elements: Choose takes %v, which reorders", kind, count, a)
					}
					p.Table = tableOf(t, Rule{Kind: kind, Algorithm: rule})
				}
			}
		}
	}
}

// TestChoices records the thresholds, so that a change of one is noticed.
func TestChoices(t *testing.T) {
	pods, apart := make([]int32, 16), make([]int32, 16)
	for i := range pods {
		pods[i], apart[i] = int32(i/4), int32(i)
	}
	got := ""
	for _, c := range []struct {
		kind  Kind
		bytes []int
	}{
		{Barrier, []int{0}},
		{Bcast, []int{treeShortBytes, treeShortBytes + 1, bcastShortBytes, bcastShortBytes + 1}},
		{Reduce, []int{reduceShortBytes, reduceShortBytes + 1, treeShortBytes, treeShortBytes + 1}},
		{Allreduce, []int{allreduceShortBytes, allreduceShortBytes + 1, 16 * ringChunkBytes}},
		{ReduceScatter, []int{reduceScatterShortBytes / 16, reduceScatterShortBytes/16 + 1}},
		{Gather, []int{rootedShortBytes, rootedShortBytes + 1}},
		{Allgather, []int{allgatherShortBytes / 16, allgatherShortBytes/16 + 1, ringChunkBytes}},
		{Alltoall, []int{alltoallShortBytes, alltoallShortBytes + 1}},
	} {
		for _, n := range c.bytes {
			p := Params{Kind: c.kind, Size: 16, Count: n, Elem: 1, Commutative: true}
			flat := Choose(p)
			p.Pods = pods
			got += fmt.Sprintf("%v %d: %v, with pods %v", c.kind, n, flat, Choose(p))
			p.Pods = apart
			if a := Choose(p); a != flat {
				got += fmt.Sprintf(", in pods of one %v", a)
			}
			got += "\n"
		}
	}
	want := `barrier 0: dissemination, with pods two-level
bcast 65535: binomial, with pods two-level
bcast 65536: binomial, with pods two-level, in pods of one double-tree
bcast 262143: binomial, with pods two-level, in pods of one double-tree
bcast 262144: scatter-allgather, with pods two-level, in pods of one double-tree
reduce 16383: binomial, with pods two-level
reduce 16384: rabenseifner, with pods two-level
reduce 65535: rabenseifner, with pods two-level
reduce 65536: rabenseifner, with pods two-level, in pods of one double-tree
allreduce 8192: recursive-doubling, with pods two-level
allreduce 8193: rabenseifner, with pods two-level
allreduce 1048576: ring, with pods two-level
reduce-scatter 32768: recursive-halving, with pods recursive-halving
reduce-scatter 32769: pairwise, with pods pairwise
gather 65535: binomial, with pods binomial
gather 65536: linear, with pods linear
allgather 4096: recursive-doubling, with pods two-level
allgather 4097: ring, with pods two-level
allgather 65536: ring, with pods ring
alltoall 256: bruck, with pods two-level
alltoall 257: pairwise, with pods pairwise
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
}

func TestAlgorithmNames(t *testing.T) {
	for a := Auto; a <= DoubleTree; a++ {
		if b, err := ParseAlgorithm(a.String()); err != nil || b != a {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", a, b, err)
		}
	}
	if _, err := ParseAlgorithm("fastest"); err == nil {
		t.Error("ParseAlgorithm accepted an unknown name")
	}
}
