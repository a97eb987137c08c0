package coll

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// TestRoundDoesNotAllocate runs all rounds of all algorithms over a thousand
// ranks with one slice for the steps.
func TestRoundDoesNotAllocate(t *testing.T) {
	pods := make([]int32, 1024)
	for i := range pods {
		pods[i] = int32(i / 128)
	}
	for _, kind := range everyKind {
		for _, a := range append(Algorithms(kind), Auto) {
			count := 5000
			if a == Auto {
				count = 1024 << 13 // an allreduce has shares
			}
			s := story{base: Params{
				Kind: kind, Algorithm: a, Size: 1024, Root: 700, Count: count, Elem: 8, Commutative: true, Pods: pods,
			}, counts: uneven(20)}
			p, err := NewPlan(s.params(333))
			if err != nil {
				t.Fatal(err)
			}
			steps := make([]Step, 0, 2*1024+8)
			n := testing.AllocsPerRun(2, func() {
				for i := range p.Rounds() {
					steps = p.Round(i, steps[:0])
				}
			})
			if n != 0 {
				t.Errorf("%v by %v: %v allocations, want 0", kind, a, n)
			}
		}
	}
}

// garbage returns numbers from the bytes of the fuzzer.
type garbage []byte

func (g *garbage) number() int64 {
	var b [8]byte
	n := copy(b[:], *g)
	*g = (*g)[n:]
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// small returns a number that is mostly small, so that plans are often valid.
func (g *garbage) small() int64 {
	if len(*g) == 0 {
		return 0
	}
	b := (*g)[0]
	*g = (*g)[1:]
	if b == 0xff {
		return g.number()
	}
	return int64(b)
}

func (g *garbage) slice(n int64) []int64 {
	if g.small()%4 == 0 || n < 0 || n > 300 {
		return nil
	}
	s := make([]int64, n)
	for i := range s {
		s[i] = g.small()
	}
	return s
}

func (g *garbage) params() Params {
	p := Params{
		Kind: Kind(g.small()), Size: int(g.small()), Rank: int(g.small()), Root: int(g.small()),
		Count: int(g.small()), Elem: int(g.small()), Algorithm: Algorithm(g.small()),
	}
	flags := g.small()
	p.Commutative, p.InPlace = flags&1 != 0, flags&2 != 0
	n := int64(p.Size)
	if flags&4 != 0 {
		n = g.small()
	}
	p.Counts, p.Displs = g.slice(n), g.slice(n)
	p.SCounts, p.SDispls = g.slice(n), g.slice(n)
	p.RCounts, p.RDispls = g.slice(n), g.slice(n)
	for _, pod := range g.slice(n) {
		p.Pods = append(p.Pods, int32(pod))
	}
	return p
}

// FuzzNewPlan gives NewPlan the parameters of a hostile client. The steps of an accepted plan
// that are checked use only the memory that the plan states.
func FuzzNewPlan(f *testing.F) {
	for kind := range byte(16) {
		for algorithm := range byte(13) {
			f.Add([]byte{kind, 7, 3, 2, 9, 8, algorithm, 1, 1, 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6})
		}
	}
	f.Add([]byte{6, 0xff, 0, 0, 16, 0, 0, 0, 0, 0, 3, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		p := (*garbage)(&data).params()
		Choose(p)
		plan, err := NewPlan(p)
		if err != nil {
			return
		}
		for _, i := range []int{-1, 0, 1, plan.Rounds() / 2, plan.Rounds() - 1, plan.Rounds()} {
			if err := checkRound(plan, i); err != nil {
				t.Fatalf("%+v: round %d: %v", p, i, err)
			}
		}
	})
}

func checkRound(p *Plan, i int) error {
	steps := p.Round(i, nil)
	if len(steps) > 2*p.p.Size+8 {
		return fmt.Errorf("%d steps", len(steps))
	}
	in, out := p.Extents()
	limit := [3]int64{In: in, Out: out, Scratch: p.Scratch()}
	for _, s := range steps {
		bad := s.Len < 0 || s.Len == 0 && p.p.Kind != Barrier
		if s.Op != Send {
			bad = bad || s.DstOff < 0 || s.DstOff > limit[s.Dst]-s.Len
		}
		if s.Op != Recv {
			bad = bad || s.SrcOff < 0 || s.SrcOff > limit[s.Src]-s.Len
		}
		if s.Op == Send || s.Op == Recv {
			bad = bad || s.Peer < 0 || int(s.Peer) >= p.p.Size || int(s.Peer) == p.p.Rank || s.Tag >= 1<<22
		}
		if bad {
			return fmt.Errorf("step %+v with buffers of %v bytes", s, limit)
		}
	}
	return nil
}

// BenchmarkRound measures one round of a large communicator.
func BenchmarkRound(b *testing.B) {
	for _, kind := range []Kind{Barrier, Allreduce, Alltoall} {
		b.Run(kind.String(), func(b *testing.B) {
			p, err := NewPlan(Params{Kind: kind, Rank: 5, Size: 1024, Count: 1000, Elem: 8, Commutative: true})
			if err != nil {
				b.Fatal(err)
			}
			var steps []Step
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				steps = p.Round(i%p.Rounds(), steps[:0])
			}
		})
	}
}

// BenchmarkNewPlan measures the plan of a small collective.
func BenchmarkNewPlan(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewPlan(Params{Kind: Allreduce, Rank: 5, Size: 1024, Count: 1, Elem: 8, Commutative: true}); err != nil {
			b.Fatal(err)
		}
	}
}
