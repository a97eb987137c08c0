package coll

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestScratchIsWhatTheContractGrants checks that no plan that Auto chooses requires more
// memory than clients allocate, by the built-in table and by each rule that a job may have.
func TestScratchIsWhatTheContractGrants(t *testing.T) {
	counts := []int{0, 1, 3, 31, 33, 1023, 2047, 4097, 8191, 8192, 65_537, 131_071, 131_072, 1 << 20, 3<<20 + 1}
	tables := map[Kind][]*Table{}
	for _, kind := range everyKind {
		for _, a := range Algorithms(kind) {
			tables[kind] = append(tables[kind], tableOf(t, Rule{Kind: kind, Algorithm: a}))
		}
	}
	for _, size := range []int{1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31, 32, 33, 64, 100} {
		for _, perPod := range []int{1, 3, size} {
			pods := make([]int32, size)
			for i := range pods {
				pods[i] = int32(i / perPod)
			}
			layout, err := NewLayout(pods)
			if err != nil {
				t.Fatal(err)
			}
			for _, count := range counts {
				for _, kind := range everyKind {
					s := story{base: Params{Kind: kind, Size: size, Root: size / 2, Count: count, Elem: 8, Layout: layout}, counts: uneven(count)}
					if kind == ReduceScatter && count%2 == 0 {
						s.counts = nil // equal blocks, which are large
					}
					for flags := range 4 {
						s.base.Commutative, s.base.InPlace = flags&1 != 0, flags&2 != 0 && kind != Alltoall && kind != Alltoallv
						checkScratch(t, &s)
						if size > 16 {
							continue // more ranks take long, and no algorithm treats them otherwise
						}
						for _, table := range tables[kind] {
							s.base.Table = table
							checkScratch(t, &s)
						}
						s.base.Table = nil
					}
				}
			}
		}
	}
}

func checkScratch(t *testing.T, s *story) {
	t.Helper()
	for rank := range s.base.Size {
		p := s.params(rank)
		plan, err := NewPlan(p)
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		b := shm.CollBlock{Kind: uint8(p.Kind), Root: uint32(p.Root), Count: uint64(p.Count), Elem: uint64(p.Elem)}
		if p.Commutative {
			b.Flags |= shm.CollCommutative
		}
		granted := shm.CollScratch(&b, p.Rank, p.Size, p.Counts)
		if uint64(plan.Scratch()) > granted {
			t.Fatalf("%v by %v: rank %d of %d with %d elements asks for %d bytes of scratch; the contract grants %d",
				p.Kind, plan.Algorithm(), p.Rank, p.Size, p.Count, plan.Scratch(), granted)
		}
	}
}
