package verbs

import (
	"errors"
	"slices"
	"testing"
)

// queueOf records what is posted to it.
type queueOf struct {
	calls [][]int32
	err   error
}

func (q *queueOf) receive(_ region, id uint64, slots []int32) error {
	if q.err != nil || id != 7 {
		return q.err
	}
	q.calls = append(q.calls, slices.Clone(slots))
	return nil
}

// TestReceives checks that all slots are posted at first, in calls of batchMax, and again
// in batches when they have been read, and that each has memory of its own.
func TestReceives(t *testing.T) {
	n, err := newFabric().open("fake0")
	if err != nil {
		t.Fatal(err)
	}
	const slots = 2*batchMax + 3
	r, err := newReceives(n, slots, 4)
	if err != nil {
		t.Fatal(err)
	}
	q := &queueOf{}
	if err := r.use(q, 7); err != nil {
		t.Fatal(err)
	}
	if all := slices.Concat(q.calls...); len(q.calls) != 3 || len(all) != slots || !slices.IsSorted(all) || len(slices.Compact(all)) != slots || len(r.free) != 0 {
		t.Errorf("posted %v, %d are free", q.calls, len(r.free))
	}
	if !r.has(slots-1) || r.has(slots) || len(r.slot(slots-1)) != slotBytes {
		t.Errorf("slot %d is there %v, slot %d %v", slots-1, r.has(slots-1), slots, r.has(slots))
	}
	for i := range int32(slots) {
		r.slot(int(i))[0], r.slot(int(i))[slotBytes-1] = byte(i), byte(i)
	}
	for i := range int32(slots) {
		if b := r.slot(int(i)); b[0] != byte(i) || b[slotBytes-1] != byte(i) {
			t.Errorf("slot %d has %d and %d", i, b[0], b[slotBytes-1])
		}
	}
	q.calls = nil
	for i, slot := range []int32{5, 1, 9, 0, 30} {
		posted, err := r.repost(slot)
		if want := []int{0, 0, 0, 4, 0}[i]; posted != want || err != nil {
			t.Errorf("%d are posted with the %d. that was read, want %d: %v", posted, i+1, want, err)
		}
	}
	if len(q.calls) != 1 || !slices.Equal(q.calls[0], []int32{5, 1, 9, 0}) || !slices.Equal(r.free, []int32{30}) {
		t.Errorf("posted %v, free %v", q.calls, r.free)
	}
	q.err = errors.New("no")
	for range 2 {
		_, _ = r.repost(2)
	}
	if _, err := r.repost(2); !errors.Is(err, q.err) {
		t.Errorf("the queue takes none: %v", err)
	}
	if err := r.close(); err != nil || len(n.regions) != 0 {
		t.Errorf("%d regions are left: %v", len(n.regions), err)
	}
	n.limit, n.regions[1] = 1, fakeRegion{}
	if _, err := newReceives(n, slots, 4); err == nil {
		t.Error("memory that is not registered")
	}
}
