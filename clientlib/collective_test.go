package outrigger

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestScratchIsWhatTheScheduleNeeds: a broadcast needs room only for its operand, so that one
// of three quarters of the arena is submitted.
func TestScratchIsWhatTheScheduleNeeds(t *testing.T) {
	s, f := attachTo(t, shape{arena: 4 << 20})
	if _, err := Ibcast(s.World(), make([]byte, 3<<20), 0); err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpColl)
	if b := f.block(&d); b.ScratchBytes != 0 || b.OutBytes != 3<<20 {
		t.Fatalf("%d bytes of scratch for a broadcast of %d bytes, want none", b.ScratchBytes, b.OutBytes)
	}
}

// TestReduceScatterSizes: the counts of a reduce-scatter are compared with the slices before
// the engine gets them.
func TestReduceScatterSizes(t *testing.T) {
	s, f := attachTo(t, shape{ranks: 2})
	for _, c := range []struct {
		in, out int
		counts  []int
	}{
		{3, 1, []int{2, 2}}, {4, 1, []int{2, 2}}, {3, 2, nil}, {8, 8, []int{1 << 62, 1 << 62}}, {8, 8, []int{-1, 4}}, {8, 8, []int{8}},
	} {
		if _, err := IreduceScatter(s.World(), make([]int64, c.in), make([]int64, c.out), c.counts, Sum); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d elements into %d by counts %v: %v, want ErrInvalid", c.in, c.out, c.counts, err)
		}
	}
	f.quiet()
	if _, err := IreduceScatter(s.World(), make([]int64, 3), make([]int64, 3), []int{3, 0}, Sum); err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpColl)
}
