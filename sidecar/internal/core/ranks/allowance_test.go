package ranks

import "testing"

// TestDividedAllowance checks that each owner has its share when another one has taken what it can, that
// all of them together never exceed the bound, and that a single owner may take all.
func TestDividedAllowance(t *testing.T) {
	for _, owners := range []int{1, 2, 3, 128} {
		const most = 65536
		b := Divide(most, owners)
		kept := make([]int64, owners)
		for i := range kept {
			for b.Fits(kept[i], 1) {
				b.Add(&kept[i], 1)
			}
			if share := int64(most / 4 / owners); kept[i] < share {
				t.Errorf("%d owners: owner %d has %d, its share is %d", owners, i, kept[i], share)
			}
		}
		if b.Used() > most || owners == 1 && b.Used() != most {
			t.Errorf("%d owners: all have %d of %d", owners, b.Used(), most)
		}
	}
}
