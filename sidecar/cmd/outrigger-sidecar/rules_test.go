package main

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// TestRules checks that a document can name exactly the algorithms of the collectives that have
// several, and that a sidecar takes each of them.
func TestRules(t *testing.T) {
	for k := coll.Barrier; k <= coll.Alltoallv; k++ {
		var names []string
		for _, a := range coll.Algorithms(k) {
			names = append(names, a.String())
		}
		if len(names) == 1 {
			names = nil
		}
		if have := bootstrap.Algorithms(k.String()); !slices.Equal(have, names) || slices.Contains(bootstrap.Collectives, k.String()) != (names != nil) {
			t.Errorf("%v: a document can name %v, package coll has %v", k, have, names)
		}
		for _, name := range names {
			list := rules([]bootstrap.CollectiveRule{{Collective: k.String(), Ranks: 3, Pods: 2, MaxBytes: 64, Algorithm: name}})
			if _, err := coll.NewTable(list); err != nil || list[0].Kind != k || list[0].Algorithm.String() != name || list[0].Ranks != 3 || list[0].Pods != 2 || list[0].Bytes != 64 {
				t.Errorf("%v by %s: %+v, error %v", k, name, list, err)
			}
		}
	}
	if _, err := coll.NewTable(rules([]bootstrap.CollectiveRule{{Collective: "scatterall", Algorithm: "ring"}})); err == nil {
		t.Error("a table with an unknown collective was made")
	}
}
