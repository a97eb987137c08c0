package why

import (
	"slices"
	"strings"
	"testing"
)

func TestOutrun(t *testing.T) {
	in := func(name string, number uint32, s float64, peers ...int) Wait {
		return Wait{Kind: Collective, Name: name, Number: number, Rounds: 1, Peer: Any, For: peers, Seconds: s}
	}
	elsewhere := in("barrier", 9, 3)
	elsewhere.Context = 4
	for name, c := range map[string]struct {
		ranks []Rank
		want  string // part of the expected line; "": no such line
	}{
		"counts":             {[]Rank{waiting(0, in("barrier", 2, 3, 1)), waiting(1, in("alltoallv", 1, 3, 0))}, "rank 1 waits in alltoallv for rank 0, which is past it: do their counts disagree?"},
		"roots":              {[]Rank{waiting(0, in("barrier", 2, 3)), waiting(1, in("gather of root 1", 1, 3, 0))}, "rank 1 waits in gather of root 1 for rank 0, which is past it: do their roots disagree?"},
		"numbers wrap":       {[]Rank{waiting(0, in("barrier", 1, 3)), waiting(1, in("alltoallv", ^uint32(0), 3, 0))}, "rank 1 waits in alltoallv for rank 0, which is past it: do their counts disagree?"},
		"it computes":        {[]Rank{{Rank: 0, Past: []Begun{{Name: "barrier", Number: 400, Count: 3}}}, waiting(1, in("gather of root 1", 1, 3, 0))}, "rank 1 waits in gather of root 1 for rank 0, which is past it by 399 collectives: do their roots disagree?"},
		"of any kind":        {[]Rank{{Rank: 0, Past: []Begun{{Name: "bcast of root 0", Number: 400, Count: 3}}}, waiting(1, in("scan", 1, 3, 0))}, "rank 1 waits in scan for rank 0, which is past it by 399 collectives: do their collectives disagree?"},
		"past another":       {[]Rank{{Rank: 0, Past: []Begun{{Name: "barrier", Number: 400, Lead: 3}}}, waiting(1, in("gather of root 1", 1, 3, 0))}, ""},
		"it may be slow":     {[]Rank{waiting(0, in("barrier", 2, 3)), waiting(1, in("alltoallv", 1, 0.1, 0))}, ""},
		"not there yet":      {[]Rank{waiting(0, in("barrier", 1, 3)), waiting(1, in("alltoallv", 2, 3, 0))}, ""},
		"in both":            {[]Rank{waiting(0, in("alltoallv", 1, 3, 1), in("barrier", 2, 3)), waiting(1, in("alltoallv", 1, 3, 0))}, ""},
		"not all is known":   {[]Rank{{Rank: 0, Waits: []Wait{in("barrier", 2, 3)}, More: 1}, waiting(1, in("alltoallv", 1, 3, 0))}, ""},
		"other communicator": {[]Rank{waiting(0, elsewhere), waiting(1, in("alltoallv", 1, 3, 0))}, ""},
	} {
		lines := Explain(c.ranks)
		if c.want == "" && strings.Contains(strings.Join(lines, "\n"), "past it") || c.want != "" && !slices.Contains(lines, c.want) {
			t.Errorf("%s: %q, want %q", name, lines, c.want)
		}
	}
}

// TestOtherOrder: an operation that is commutative on some ranks only is combined in two
// different ways.
func TestOtherOrder(t *testing.T) {
	in := func(order string) Wait {
		return Wait{Kind: Collective, Name: "allreduce", Number: 1, Seconds: 2, Order: order}
	}
	const want = "ranks disagree about a collective: rank 0 is in allreduce (commutative), rank 1 is in allreduce (not commutative)"
	if got := Explain([]Rank{waiting(0, in("commutative")), waiting(1, in("not commutative"))})[0]; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Explain([]Rank{waiting(0, in("commutative")), waiting(1, in(""))})[0]; strings.Contains(got, "disagree") {
		t.Errorf("a sidecar that does not know disagrees: %q", got)
	}
}
