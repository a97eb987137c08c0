package alloc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// devices parses candidates of the form "id@node" or "id@node/hardware".
func devices(t *testing.T, text string) []Candidate {
	t.Helper()
	var list []Candidate
	for _, word := range strings.Fields(text) {
		id, place, _ := strings.Cut(word, "@")
		node, hardware, shared := strings.Cut(place, "/")
		c := Candidate{ID: id, Hardware: id}
		if shared {
			c.Hardware = hardware
		}
		if _, err := fmt.Sscan(node, &c.NUMA); err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

func TestPrefer(t *testing.T) {
	for name, c := range map[string]struct {
		available string
		must      []string
		size      int
		near      []int
		partners  map[int]int
		want      string
	}{
		"whole request on one node":                {available: "a@0 b@1 c@1", size: 2, want: "b c"},
		"required decides the node":                {available: "a@0 b@1 c@1 d@0", must: []string{"d"}, size: 2, want: "d a"},
		"near what the container holds":            {available: "a@0 b@0 c@1 d@1", size: 1, near: []int{1}, want: "c"},
		"near even when it has to be two nodes":    {available: "a@0 b@0 c@1", size: 2, near: []int{1}, want: "c a"},
		"required before near":                     {available: "a@0 b@0 c@1", must: []string{"a"}, size: 2, near: []int{1}, want: "a b"},
		"a node with a partner":                    {available: "a@0 b@1", size: 1, partners: map[int]int{1: 4}, want: "b"},
		"enough on one node before a partner":      {available: "a@0 b@0 c@1", size: 2, partners: map[int]int{1: 4}, want: "a b"},
		"tightest node that fits":                  {available: "a@0 b@0 c@0 d@1 e@1", size: 1, want: "d"},
		"largest first when none fits":             {available: "a@0 b@1 c@1 d@2 e@2 f@2", size: 4, want: "d e f a"},
		"unknown nodes last":                       {available: "a@-1 b@0", size: 1, want: "b"},
		"only unknown nodes":                       {available: "a@-1 b@-1", size: 2, want: "a b"},
		"shares spread over hardware":              {available: "a0@0/a a1@0/a b0@0/b b1@0/b", size: 2, want: "a0 b0"},
		"required share counts for its hardware":   {available: "a0@0/a a1@0/a b0@0/b", must: []string{"a1"}, size: 2, want: "a1 b0"},
		"fewer than asked":                         {available: "a@0", size: 3, want: "a"},
		"nothing asked":                            {available: "a@0", want: ""},
		"more required than asked":                 {available: "a@0 b@0", must: []string{"a", "b"}, size: 1, want: "a"},
		"required that is not available is not in": {available: "a@0", must: []string{"z"}, size: 1, want: "a"},
	} {
		r := &Request{Available: devices(t, c.available), Must: c.must, Size: c.size, Near: c.near, Partners: c.partners}
		if got := strings.Join(Prefer(r), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// nodesOf returns on how many NUMA nodes the devices with these IDs are.
func nodesOf(all []Candidate, ids []string) int {
	nodes := map[int]bool{}
	for _, c := range all {
		if slices.Contains(ids, c.ID) {
			nodes[c.NUMA] = true
		}
	}
	return len(nodes)
}

// fewest returns the minimum number of NUMA nodes over all subsets of the size, by trying
// each.
func fewest(all []Candidate, size int) int {
	best := len(all) + 1
	for set := range 1 << len(all) {
		var ids []string
		for i := range all {
			if set>>i&1 == 1 {
				ids = append(ids, all[i].ID)
			}
		}
		if len(ids) == size {
			best = min(best, nodesOf(all, ids))
		}
	}
	return best
}

// TestFewestNodes compares answers with all subsets: without other conditions, an answer has
// the minimum number of NUMA nodes, the right size and no device twice.
func TestFewestNodes(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := make([]Candidate, 1+rng.IntN(9))
		for i := range all {
			all[i] = Candidate{ID: fmt.Sprint("d", i), Hardware: fmt.Sprint("h", rng.IntN(3)), NUMA: rng.IntN(4)}
		}
		r := &Request{Available: all, Size: 1 + rng.IntN(len(all))}
		got := Prefer(r)
		slices.Sort(got)
		if len(slices.Compact(slices.Clone(got))) != r.Size {
			t.Fatalf("seed %d: %v for %d", seed, got, r.Size)
		}
		if n, best := nodesOf(all, got), fewest(all, r.Size); n != best {
			t.Fatalf("seed %d: %v of %v touches %d nodes, %d would do", seed, got, all, n, best)
		}
	}
}

// TestSpread: containers get one share each, one after the other. With spread, the cards get
// equal numbers of shares, on one node or on two; with pack, one card is filled first.
func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  [2]int
		spread bool
		want   [2]int
	}{
		"one node":            {[2]int{0, 0}, true, [2]int{8, 8}},
		"two nodes":           {[2]int{0, 1}, true, [2]int{8, 8}},
		"packed on one node":  {[2]int{0, 0}, false, [2]int{16, 0}},
		"packed on two nodes": {[2]int{0, 1}, false, [2]int{16, 0}},
	} {
		var free []Candidate
		for card, node := range c.nodes {
			for share := range 16 {
				free = append(free, Candidate{ID: fmt.Sprintf("%d::%02d", card, share), Hardware: fmt.Sprint(card), NUMA: node})
			}
		}
		var got [2]int
		for range 16 {
			r := &Request{Available: free, Size: 1, Spread: c.spread}
			id := Prefer(r)[0]
			i := slices.IndexFunc(free, func(d Candidate) bool { return d.ID == id })
			got[id[0]-'0']++
			free = slices.Delete(free, i, i+1)
		}
		if got != c.want {
			t.Errorf("%s: %v shares, want %v", name, got, c.want)
		}
	}
}
