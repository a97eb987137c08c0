package memory

import (
	"math"
	"testing"
)

// TestNeed: a job's memory grows with all that it has, and the largest job that
// the schema allows does not overflow.
func TestNeed(t *testing.T) {
	const mi = 1 << 20
	s := Sizes{Arena: 255 * mi, Slab: 0, Credit: mi}
	for _, c := range []struct {
		s                 Sizes
		here, ranks, pods int
		want              int64
	}{
		{Sizes{}, 0, 0, 1, (96 + 1) * mi},
		{s, 1, 1, 1, (96 + 258 + 6 + 1) * mi},
		{s, 2, 4, 2, (96 + 2*258 + 2*6 + 2 + 1) * mi},
		{Sizes{Arena: 255 * mi, Credit: mi, Encrypted: true}, 2, 4, 2, (96 + 2*258 + 2*6 + 4 + 1) * mi},
		{Sizes{Arena: 255 * mi, Credit: 512 * mi}, 1, 2, 2, (96 + 258 + 2*5*512 + 256 + 2 + 1) * mi},
	} {
		if got := c.s.Need(c.here, c.ranks, c.pods); got != c.want {
			t.Errorf("%+v, %d of %d ranks in a pod of %d: %d, want %d", c.s, c.here, c.ranks, c.pods, got, c.want)
		}
	}
	largest := Sizes{Arena: 16 << 40, Slab: 1 << 30, Credit: 1 << 30, Encrypted: true}
	if got := largest.Need(1024, 524288, 4096); got < 1024*(16<<40) || got > math.MaxInt64/2 {
		t.Errorf("the largest job: %d", got)
	}
}
