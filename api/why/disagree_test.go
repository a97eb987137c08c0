package why

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestDisagreements(t *testing.T) {
	in := func(name string, number uint32) Wait {
		return Wait{Kind: Collective, Name: name, Number: number, Peer: Any}
	}
	was := func(name string, number uint32) Begun { return Begun{Name: name, Number: number} }
	sub := func(w Wait, lead int) Wait {
		w.Context, w.Lead = 7, lead
		return w
	}
	for name, c := range map[string]struct {
		ranks []Rank
		want  string // expected line; "": no line
	}{
		"two roots": {[]Rank{waiting(0, in("reduce of root 0", 3)), waiting(1, in("reduce of root 1", 3))}, "rank 0 is in reduce of root 0, rank 1 is in reduce of root 1"},
		"one has left": {
			[]Rank{waiting(1, in("reduce of root 1", 3)), {Rank: 2, State: Left, Past: []Begun{was("reduce of root 0", 3)}}},
			"rank 1 is in reduce of root 1, rank 2 was in reduce of root 0",
		},
		"one is further": {
			[]Rank{{Rank: 0, Waits: []Wait{in("barrier", 5)}, Past: []Begun{was("barrier", 5), was("bcast of root 0", 4), was("gather of root 0", 3)}}, waiting(1, in("gather of root 1", 3))},
			"rank 0 was in gather of root 0, rank 1 is in gather of root 1",
		},
		"a number that was another communicator's before": {
			[]Rank{
				{Rank: 0, Waits: []Wait{in("allreduce", 3)}, Past: []Begun{was("allreduce", 3), {Name: "bcast of root 0", Number: 1000, Count: 1000}}},
				{Rank: 1, Past: []Begun{{Name: "bcast of root 0", Number: 1000, Count: 1000}}},
			},
			"",
		},
		"what follows from it is not told": {
			[]Rank{waiting(0, in("barrier", 3), in("bcast of root 0", 4)), waiting(1, in("bcast of root 0", 3), in("barrier", 4))},
			"rank 0 is in barrier, rank 1 is in bcast of root 0",
		},
		"a communicator's":            {[]Rank{waiting(4, sub(in("barrier", 1), 4)), waiting(6, sub(in("scan", 1), 4))}, "rank 4 is in barrier, rank 6 is in scan (communicator 7)"},
		"both halves of a split":      {[]Rank{waiting(0, sub(in("reduce of root 0", 1), 0)), waiting(1, sub(in("barrier", 1), 1))}, ""},
		"counts are still being read": {[]Rank{waiting(0, in("gatherv", 0)), waiting(1, in("alltoallv", 0))}, ""},
		"one is thousands further": {
			[]Rank{waiting(0, in("gather of root 0", 5)), {Rank: 1, Past: []Begun{{Name: "barrier", Number: 5004}, {Name: "bcast of root 1", Number: 5003, Count: 5000}}}},
			"rank 0 is in gather of root 0, rank 1 was in bcast of root 1",
		},
		"a row that ends before":  {[]Rank{waiting(0, in("barrier", 5)), {Rank: 1, Past: []Begun{{Name: "scan", Number: 4, Count: 4}}}}, ""},
		"a row that begins later": {[]Rank{waiting(0, in("barrier", 5)), {Rank: 1, Past: []Begun{{Name: "scan", Number: 900, Count: 895}}}}, ""},
		"a row that wraps": {
			[]Rank{waiting(0, in("barrier", ^uint32(0))), {Rank: 1, Past: []Begun{{Name: "scan", Number: 3, Count: 9}}}},
			"rank 0 is in barrier, rank 1 was in scan",
		},
		"ahead":               {[]Rank{waiting(0, in("barrier", 9)), waiting(1, in("gather of root 1", 3))}, ""},
		"no rank waits in it": {[]Rank{{Rank: 0, Past: []Begun{was("barrier", 3)}}, {Rank: 1, Past: []Begun{was("scan", 3)}}}, ""},
	} {
		got := Disagreements(c.ranks)
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.Equal(got, []string{TextDisagreement + c.want}) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	over := []Rank{{Rank: 0, Past: []Begun{was("barrier", 3)}}, {Rank: 1, Past: []Begun{was("scan", 3)}}}
	rows := []Rank{{Rank: 0, Past: []Begun{{Name: "barrier", Number: 10, Count: 5}, {Name: "scan", Number: 5, Count: 5}}}, {Rank: 1, Past: []Begun{{Name: "barrier", Number: 9, Count: 5}, {Name: "scan", Number: 4, Count: 4}}}}
	if got := Disagreed(rows); len(got) != 1 || got[0] != TextDisagreement+"rank 0 was in scan, rank 1 was in barrier" {
		t.Errorf("of rows that meet: %q", got)
	}
	if got := Disagreed(over); len(got) != 1 || got[0] != TextDisagreement+"rank 0 was in barrier, rank 1 was in scan" {
		t.Errorf("of a job that is over: %q", got)
	}
}

// TestRightProgramsAgree: ranks of a correct program are asked one after the other, each at
// any position of the program, in the world and in communicators that splits make, several of
// which have the same number at a time.
func TestRightProgramsAgree(t *testing.T) {
	names := []string{"barrier", "gather of root 0", "reduce of root 1", "alltoallv", "fence of window 2"}
	for range 300 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 1))
		kinds := map[[3]int]string{} // name of each collective, by communicator, lead and number
		ranks := make([]Rank, 2+rng.IntN(9))
		for i := range ranks {
			r := &ranks[i]
			r.Rank = i
			for context := range 4 {
				lead := 0
				if context > 0 {
					lead = i % (context + 1)
				}
				at := rng.IntN(40)
				for n := at; n > max(at-8, 0); n-- {
					key := [3]int{context, lead, n}
					if kinds[key] == "" {
						kinds[key] = names[rng.IntN(len(names))]
					}
					r.Past = append(r.Past, Begun{uint32(context), lead, uint32(n), kinds[key], "", 1})
					if rng.IntN(3) == 0 {
						r.Waits = append(r.Waits, Wait{Kind: Collective, Name: kinds[key], Context: uint32(context), Lead: lead, Number: uint32(n), Seconds: 100})
					}
				}
			}
		}
		if got := append(Disagreements(ranks), Disagreed(ranks)...); len(got) > 0 {
			t.Fatalf("seed %d: %q", seed, got)
		}
		// A rank that calls another collective is found even if others have left.
		r := &ranks[rng.IntN(len(ranks))]
		wrong := Begun{Number: 41, Name: "scan"}
		for i := range ranks {
			ranks[i].Past = append(ranks[i].Past, Begun{Number: 41, Name: "barrier"})
		}
		r.Past[len(r.Past)-1] = wrong
		r.Waits = append(r.Waits, Wait{Kind: Collective, Name: "scan", Number: 41})
		if got := Disagreements(ranks); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("rank %d is in scan", r.Rank)) {
			t.Fatalf("seed %d: %q", seed, got)
		}
	}
}
