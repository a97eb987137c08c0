package coll

import (
	"math"
	"strings"
	"testing"
)

// tableOf returns a table with one rule.
func tableOf(t *testing.T, rules ...Rule) *Table {
	t.Helper()
	table, err := NewTable(rules)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestRules checks which rules apply to a collective, and which choice remains without one.
func TestRules(t *testing.T) {
	base := Params{Kind: Allreduce, Size: 4, Count: 1024, Elem: 8, Commutative: true, Pods: []int32{0, 0, 1, 1}}
	ring := Rule{Kind: Allreduce, Algorithm: Ring}
	for _, c := range []struct {
		what   string
		rules  []Rule
		change func(*Params)
		want   Algorithm
	}{
		{"no rule", nil, nil, TwoLevel},
		{"any communicator and size", []Rule{ring}, nil, Ring},
		{"another kind", []Rule{{Kind: Reduce, Algorithm: Rabenseifner}}, nil, TwoLevel},
		{"up to this size", []Rule{{Kind: Allreduce, Bytes: 8192, Algorithm: Ring}}, nil, Ring},
		{"up to a smaller size", []Rule{{Kind: Allreduce, Bytes: 8191, Algorithm: Ring}}, nil, TwoLevel},
		{"the first that applies", []Rule{{Kind: Allreduce, Bytes: 64, Algorithm: Rabenseifner}, {Kind: Allreduce, Bytes: 8192, Algorithm: RecursiveDoubling}, ring}, nil, RecursiveDoubling},
		{"these ranks and pods", []Rule{{Kind: Allreduce, Ranks: 4, Pods: 2, Algorithm: Ring}}, nil, Ring},
		{"other ranks", []Rule{{Kind: Allreduce, Ranks: 5, Algorithm: Ring}}, nil, TwoLevel},
		{"other pods", []Rule{{Kind: Allreduce, Pods: 4, Algorithm: Ring}}, nil, TwoLevel},
		{"one pod without a layout", []Rule{{Kind: Allreduce, Pods: 1, Algorithm: Ring}}, func(p *Params) { p.Pods = nil }, Ring},
		{"two levels in one pod", []Rule{{Kind: Allreduce, Algorithm: TwoLevel}, {Kind: Allreduce, Algorithm: Ring}}, func(p *Params) { p.Pods = nil }, Ring},
		{"an operation that does not commute", []Rule{ring}, func(p *Params) { p.Commutative = false }, RecursiveDoubling},
		{"more scratch memory than clients allocate", []Rule{{Kind: Allreduce, Algorithm: Rabenseifner}}, func(p *Params) { p.Count = 1 << 20 }, TwoLevel},
		{"two levels of long vectors in unequal pods", []Rule{{Kind: Allreduce, Algorithm: TwoLevel}}, func(p *Params) { p.Count, p.Pods = 1<<20, []int32{0, 0, 0, 1} }, Ring},
		{"the whole reduce-scatter", []Rule{{Kind: ReduceScatter, Bytes: 4 * 8192, Algorithm: RecursiveDoubling}}, func(p *Params) { p.Kind = ReduceScatter }, RecursiveDoubling},
		{"a larger reduce-scatter", []Rule{{Kind: ReduceScatter, Bytes: 4*8192 - 1, Algorithm: RecursiveDoubling}}, func(p *Params) { p.Kind = ReduceScatter }, RecursiveHalving},
		{"one block", []Rule{{Kind: Allgather, Bytes: 8192, Algorithm: RecursiveDoubling}}, func(p *Params) { p.Kind = Allgather }, RecursiveDoubling},
		{"a barrier", []Rule{{Kind: Barrier, Bytes: 1, Algorithm: Dissemination}}, func(p *Params) { p.Kind = Barrier }, Dissemination},
	} {
		table, err := NewTable(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		p := base
		p.Table = table
		if c.change != nil {
			c.change(&p)
		}
		plan, err := NewPlan(p)
		if err != nil || plan.Algorithm() != c.want || Choose(p) != c.want {
			t.Errorf("%s: %v, error %v, want %v", c.what, Choose(p), err, c.want)
		}
		p.Algorithm = Rabenseifner // the client's own choice comes first
		if plan, err := NewPlan(p); p.Kind == Allreduce && p.Commutative && (err != nil || plan.Algorithm() != Rabenseifner) {
			t.Errorf("%s: the client's choice: %v, error %v", c.what, plan.Algorithm(), err)
		}
	}
}

func TestRulesRefused(t *testing.T) {
	for text, r := range map[string]Rule{
		"no collective cannot be done by ring": {Algorithm: Ring},
		"unknown collective cannot":            {Kind: Alltoallv + 1, Algorithm: Ring},
		"bcast cannot be done by ring":         {Kind: Bcast, Algorithm: Ring},
		"bcast cannot be done by auto":         {Kind: Bcast},
		"-1 ranks":                             {Kind: Barrier, Algorithm: TwoLevel, Ranks: -1},
		"-2 pods":                              {Kind: Barrier, Algorithm: TwoLevel, Pods: -2},

		"-9223372036854775808 bytes: want no negative number": {Kind: Barrier, Algorithm: TwoLevel, Bytes: math.MinInt64},
	} {
		if _, err := NewTable([]Rule{r}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: error %v, want %q", r, err, text)
		}
	}
}

// TestRuledChoiceAllocatesNothing checks that the table costs a collective no memory, also if a
// rule cannot serve it.
func TestRuledChoiceAllocatesNothing(t *testing.T) {
	table, err := NewTable([]Rule{{Kind: Allreduce, Algorithm: TwoLevel}, {Kind: Allreduce, Bytes: 8, Algorithm: Ring}, {Kind: Allreduce, Algorithm: Rabenseifner}})
	if err != nil {
		t.Fatal(err)
	}
	p := Params{Kind: Allreduce, Size: 4, Count: 1024, Elem: 8, Commutative: true}
	if n := testing.AllocsPerRun(100, func() {
		s := p.shape()
		if s.choose(table) != Rabenseifner {
			t.Fatal("another choice")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
