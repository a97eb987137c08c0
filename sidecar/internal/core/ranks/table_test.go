package ranks

import (
	"math"
	"testing"
)

// TestGenerationsDoNotStartAnew checks that an entry is retired when its generations are used
// up, so that late ids of peers never name a new request.
func TestGenerationsDoNotStartAnew(t *testing.T) {
	var table Table[int]
	_, early := table.Alloc()
	table.Release(early)
	table.chunks[0][0].gen = math.MaxUint32 - 5 // as if it had been used 2^31 times
	last := uint64(0)
	for range 4 {
		_, id := table.Alloc()
		table.Release(id)
		if id&math.MaxUint32 == 0 {
			last = id
		}
	}
	if last>>32 != math.MaxUint32-2 {
		t.Errorf("the last generation of the entry is %d, want %d", last>>32, uint32(math.MaxUint32-2))
	}
	for _, id := range []uint64{early, last} {
		if err := table.Ended(id, "an answer to"); err != nil || table.Get(id) != nil {
			t.Errorf("request %#x: %v, entry %v; want an ended request", id, err, table.Get(id))
		}
	}
	if _, id := table.Alloc(); id&math.MaxUint32 == 0 {
		t.Errorf("a retired entry is used again, as request %#x", id)
	}
	if table.Len() != 1 {
		t.Errorf("%d entries are in use, want 1", table.Len())
	}
}
