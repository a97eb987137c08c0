package why

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// named returns the numbers of ranks.
func named(ranks []Rank) (n []int) {
	for i := range ranks {
		n = append(n, ranks[i].Rank)
	}
	return n
}

// meet is a wait in a collective for ranks.
func meet(seconds float64, ranks ...int) Wait {
	return Wait{Kind: Collective, Name: "barrier", Peer: Any, Seconds: seconds, For: ranks}
}

func TestKnot(t *testing.T) {
	works := Rank{Rank: 2, Quiet: 60}
	changed := func(r Rank, change func(*Rank)) Rank { change(&r); return r }
	pair := func(change func(*Rank)) []Rank {
		return []Rank{quiet(0, 5, recv(1, 1, 5)), changed(quiet(1, 5, recv(0, 1, 5)), change), works}
	}
	for name, x := range map[string]struct {
		ranks []Rank
		want  []int
	}{
		"two":                       {pair(func(*Rank) {}), []int{0, 1}},
		"a ring, and its followers": {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 5, recv(3, 1, 5)), works, quiet(3, 5, recv(0, 1, 5)), quiet(4, 5, recv(3, 1, 5))}, []int{0, 1, 3, 4}},
		"itself":                    {[]Rank{quiet(0, 5, recv(0, 1, 5)), works}, []int{0}},
		"a send":                    {[]Rank{quiet(0, 5, Wait{Kind: Send, Peer: 1, Seconds: 5}), quiet(1, 5, Wait{Kind: Send, Peer: 0, Seconds: 5}), works}, []int{0, 1}},
		"a collective":              {[]Rank{quiet(0, 5, meet(5, 1, 2)), quiet(1, 5, recv(0, 1, 5)), works}, []int{0, 1}},
		"each of its requests":      {[]Rank{quiet(0, 5, recv(1, 1, 5), recv(1, 2, 5)), quiet(1, 5, recv(0, 1, 5)), works}, []int{0, 1}},
		"others exchange messages":  {pair(func(r *Rank) { r.Moves, r.Others = true, true }), []int{0, 1}},
		"all":                       {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 5, recv(0, 1, 5))}, []int{0, 1}},

		"a chain to one that works": {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 5, recv(2, 1, 5)), works}, nil},
		"one has another request":   {[]Rank{quiet(0, 5, recv(1, 1, 5), recv(2, 1, 5)), quiet(1, 5, recv(0, 1, 5)), works}, nil},
		"from any rank":             {[]Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 5, recv(Any, 1, 5)), works}, nil},
		"not for long":              {pair(func(r *Rank) { r.Quiet = 0.5 }), nil},
		"a message moves":           {pair(func(r *Rank) { r.Moves = true }), nil},
		"unread":                    {pair(func(r *Rank) { r.Unread = true }), nil},
		"free":                      {pair(func(r *Rank) { r.Free = true }), nil},
		"stopped":                   {pair(func(r *Rank) { r.Stopped = 7 }), nil},
		"more requests":             {pair(func(r *Rank) { r.More = 1 }), nil},
		"messages of its own":       {pair(func(r *Rank) { r.Local = true }), nil},
		"in MPI_Init":               {pair(func(r *Rank) { r.Meeting, r.Waits = 60, nil }), nil},
		"another generation":        {pair(func(r *Rank) { r.Generation = 2 }), nil},
		"one has left":              {pair(func(r *Rank) { r.State = Left }), nil},
		"a put":                     {[]Rank{quiet(0, 5, Wait{Kind: OneSided, Name: "put", Peer: 1, Seconds: 5}), quiet(1, 5, recv(0, 1, 5)), works}, nil},
		"no ranks":                  {nil, nil},
	} {
		if got := named(Knot(x.ranks, time.Second)); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

func TestRemain(t *testing.T) {
	knot := []Rank{quiet(0, 5, recv(1, 1, 5)), quiet(1, 5, recv(0, 1, 5))}
	for name, x := range map[string]struct {
		ranks []Rank
		want  bool
	}{
		"others move":        {[]Rank{quiet(1, 8, recv(0, 1, 8)), quiet(0, 8, recv(1, 1, 8)), {Rank: 2}}, true},
		"a message moves":    {[]Rank{{Rank: 0, Quiet: 8, Moves: true}, quiet(1, 8, recv(0, 1, 8))}, true},
		"one has ended":      {[]Rank{quiet(0, 1, recv(1, 1, 1)), quiet(1, 8, recv(0, 1, 8))}, false},
		"one has left":       {[]Rank{{Rank: 0, Quiet: 8, State: Left}, quiet(1, 8, recv(0, 1, 8))}, false},
		"another generation": {[]Rank{{Rank: 0, Quiet: 8, Generation: 2}, quiet(1, 8, recv(0, 1, 8))}, false},
		"one is not known":   {knot[1:], false},
	} {
		if got := Remain(knot, x.ranks, 3*time.Second); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestKnotOfLocks: ranks that hold locks of windows wait for each other's.
func TestKnotOfLocks(t *testing.T) {
	at := func(rank, holder, other int) Rank {
		r := quiet(rank, 5, lockOf(other))
		r.Locks = []Lock{{Window: 3, Holders: []Holder{{Rank: holder, Seconds: 9}}}}
		return r
	}
	if got := named(Knot([]Rank{at(0, 0, 1), at(1, 1, 0), {Rank: 2, Quiet: 9}}, time.Second)); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("%v, want ranks 0 and 1", got)
	}
	if got := Knot([]Rank{at(0, 2, 1), at(1, 2, 0), {Rank: 2, Quiet: 9}}, time.Second); got != nil {
		t.Errorf("ranks %v, but a rank that works has the locks", named(got))
	}
}

func TestKnotText(t *testing.T) {
	var knot []Rank
	for n, want := range []string{"rank 0 has waited for itself for 10 s or longer", "ranks 0 and 1 have waited for each other for 10 s", "ranks 0 to 2 have waited for each other for 10 s"} {
		knot = append(knot, Rank{Rank: n})
		if text := KnotText(knot, 10*time.Second); !strings.Contains(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}
