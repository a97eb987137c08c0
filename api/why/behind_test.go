package why

import (
	"strings"
	"testing"
)

// In a barrier of 64 ranks, each waiting rank waits for a rank that waits. The ranks
// that have not arrived are reported before them, in one line.
func TestBehind(t *testing.T) {
	barrier := func(of int) Wait {
		return Wait{Kind: Collective, Name: "barrier", Round: 1, Rounds: 10, For: []int{of}, Seconds: 4}
	}
	tree := func(ranks int, last Rank) []Rank {
		list := []Rank{last}
		for r := 1; r < ranks; r++ {
			list = append(list, waiting(r, barrier(r&(r-1)))) // the rank's parent in a binomial tree
		}
		return list
	}
	var many []Rank
	for i := range 1000 { // a hundred roots, for each of which nine ranks wait
		if r := waiting(i, barrier(i-1)); i%10 > 0 {
			many = append(many, r)
		} else {
			many = append(many, Rank{Rank: i})
		}
	}
	if lines := Explain(many); len(lines) > behindMost+lineLimit+3 || lines[behindMost] != "and so for further ones" {
		t.Errorf("%d lines: %.600q", len(lines), lines)
	}
	Explain(append(tree(16, Rank{Rank: 0}), Rank{Rank: 5}, waiting(5, recv(3, 1, 1)))) // a sidecar may lie
	for name, x := range map[string]struct {
		ranks []Rank
		want  string // the first line
		no    bool   // there is no such line
	}{
		"one computes":        {tree(64, Rank{Rank: 0}), "63 ranks wait for rank 0, or for one that waits for it; it waits for no message: its program computes, or waits for something else", false},
		"one waits for any":   {tree(16, waiting(0, recv(Any, 3, 9))), "15 ranks wait for rank 0, or for one that waits for it; it waits in recv from any rank tag 3", false},
		"few":                 {tree(8, Rank{Rank: 0}), "or for one that waits for it", true},
		"a ring":              {tree(16, waiting(0, recv(15, 3, 9))), "or for one that waits for it", true},
		"one has left":        {tree(16, Rank{Rank: 0, State: Left}), "or for one that waits for it", true},
		"one is stopped":      {tree(16, Rank{Rank: 0, Stopped: 99}), "or for one that waits for it", true},
		"one is not known of": {tree(16, Rank{Rank: 0})[1:], "or for one that waits for it", true},
	} {
		lines := Explain(x.ranks)
		if x.no == strings.Contains(strings.Join(lines, "\n"), x.want) || !x.no && lines[0] != x.want {
			t.Errorf("%s: %q, want %q: %v", name, lines[0], x.want, !x.no)
		}
	}
}
