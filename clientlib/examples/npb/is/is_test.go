package is

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

func TestGenerateDoesNotDependOnTheSplit(t *testing.T) {
	p := problems[bench.S]
	whole := make([]int32, p.keys())
	generate(p, 0, whole)
	for _, ranks := range []int{2, 3, 8} {
		var joined []int32
		for r := range ranks {
			lo, hi := bench.Block(p.keys(), ranks, r)
			part := make([]int32, hi-lo)
			generate(p, lo, part)
			joined = append(joined, part...)
		}
		if !slices.Equal(joined, whole) {
			t.Errorf("%d parts are not the sequence of one", ranks)
		}
	}
	for i, k := range whole {
		if k < 0 || int(k) >= p.maxKey() {
			t.Fatalf("key %d is %d, outside 0..%d", i, k, p.maxKey()-1)
		}
	}
}

// The published ranks against plain counting, without buckets.
func TestPublishedRanksByCounting(t *testing.T) {
	for _, class := range []bench.Class{bench.S, bench.W} {
		p := problems[class]
		keys := make([]int32, p.keys())
		generate(p, 0, keys)
		for i := 1; i <= iterations; i++ {
			plant(p, i, keys)
			for _, probe := range p.probes {
				smaller := int64(0)
				for _, k := range keys {
					if k < keys[probe.index] {
						smaller++
					}
				}
				if smaller != probe.expected(i) {
					t.Errorf("class %s, iteration %d: key %d has rank %d, published %d", class, i, probe.index, smaller, probe.expected(i))
				}
			}
		}
	}
}

func TestAssignTilesTheBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		totals := make([]int32, 1+rng.IntN(40))
		keys := 0
		for i := range totals {
			if rng.IntN(3) > 0 {
				totals[i] = int32(rng.IntN(1 + 50<<rng.IntN(5)))
			}
			keys += int(totals[i])
		}
		first := make([]int, 2+rng.IntN(len(totals)))
		assign(totals, keys, first)
		if first[0] != 0 || first[len(first)-1] != len(totals) || !slices.IsSorted(first) {
			t.Fatalf("buckets %v over %d ranks: %v", totals, len(first)-1, first)
		}
	}
}

// With many more buckets than ranks no rank has more than its share and one
// bucket, since its run ends where the share is reached.
func TestAssignBalances(t *testing.T) {
	totals := slices.Repeat([]int32{10}, 512)
	for _, ranks := range []int{1, 2, 3, 4, 7, 8, 100} {
		first := make([]int, ranks+1)
		assign(totals, 5120, first)
		for r := range ranks {
			if n := sumRange(totals, first[r], first[r+1]); n == 0 || n > 5120/ranks+20 {
				t.Errorf("%d ranks: rank %d has %d keys", ranks, r, n)
			}
		}
	}
}

// alone returns a sorter of one rank, which has all keys and sends no messages.
func alone(p problem) *sorter {
	s := &sorter{
		p: p, keys: make([]int32, p.keys()), cursor: make([]int32, p.buckets()),
		bucketed: make([]int32, p.keys()), owner: []int{0, p.buckets()},
	}
	s.local = make([]int32, p.buckets()+probeCount)
	generate(p, 0, s.keys)
	return s
}

func TestRankAndSortOnOneRank(t *testing.T) {
	p := problems[bench.S]
	s := alone(p)
	for i := 1; i <= iterations; i++ {
		plant(p, i, s.keys)
		s.countBuckets()
		s.fillBuckets()
		s.totals, s.received = s.local, s.bucketed
		s.populate()
		if passed := s.probe(i); passed != probeCount {
			t.Errorf("iteration %d: %d of %d probes pass", i, passed, probeCount)
		}
	}
	if passed := s.probe(iterations + 1); passed == probeCount {
		t.Error("the probes pass for an iteration that was not run")
	}
	want := slices.Clone(s.keys)
	slices.Sort(want)
	if !slices.Equal(s.sorted(), want) {
		t.Error("keys placed by rank are not the sorted keys")
	}
}

func TestPacked(t *testing.T) {
	displs := make([]int, 4)
	if end := packed([]int{3, 0, 2, 5}, displs); end != 10 || !slices.Equal(displs, []int{0, 3, 3, 5}) {
		t.Errorf("packed gives %v and end %d", displs, end)
	}
}
