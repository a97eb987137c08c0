package coll

import "testing"

// TestBcastOtherElements checks that ranks may give the same bytes of a broadcast in elements of
// other sizes: they have to agree on the bytes only (PROTOCOL §5.1).
func TestBcastOtherElements(t *testing.T) {
	for _, pods := range [][]int32{{0, 1, 2}, {0, 0, 1, 1, 2, 2}} {
		for _, bytes := range []int{8, 8193 * 8, 100_008} {
			m := newMachine(1, nil)
			for rank := range pods {
				p := Params{Kind: Bcast, Rank: rank, Size: len(pods), Count: bytes / 8, Elem: 8, Pods: pods}
				if rank > 0 {
					p.Count, p.Elem = bytes, 1
				}
				l, err := NewPlan(p)
				if err != nil {
					t.Fatal(err)
				}
				m.add(l, false)
			}
			if err := m.run(); err != nil {
				t.Errorf("%d bytes, pods %v: %v", bytes, pods, err)
			}
		}
	}
}
