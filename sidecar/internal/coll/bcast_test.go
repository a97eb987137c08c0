package coll

import "testing"

// TestSmallBroadcastsAreSentAtOnce checks that the root of a small broadcast sends to all
// children in one round. In a large one each child has a round, so that the child with the
// deepest subtree has the data first.
func TestSmallBroadcastsAreSentAtOnce(t *testing.T) {
	for bytes, want := range map[int][]int{togetherBytes: {3, 0, 0}, togetherBytes + 1: {1, 1, 1}} {
		l, err := NewPlan(Params{Kind: Bcast, Algorithm: Binomial, Size: 8, Rank: 2, Root: 2, Count: bytes, Elem: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Rounds() {
			if steps := l.Round(i, nil); len(steps) != want[i] {
				t.Errorf("%d bytes: %d sends in round %d, want %d", bytes, len(steps), i, want[i])
			}
		}
	}
}
