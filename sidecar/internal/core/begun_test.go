package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// TestBegunIsKept: the last collectives of a rank are known, the last one first, also
// when it has left, and none before the first. Keeping them allocates nothing.
func TestBegunIsKept(t *testing.T) {
	c, _ := vectored(t)
	e := c.hosted[0]
	if w := c.WaitsOf(0); w.Past != nil {
		t.Errorf("before the first: %+v", w.Past)
	}
	st := &collective{comm: e.session.comms[0], plan: new(coll.Plan), kind: coll.Barrier}
	const n = 3*begunKept + 2
	for range n {
		st.seq++
		e.begun.add(st)
	}
	c.Detach(4, 0, nil)
	w := c.WaitsOf(0)
	if !w.Left || len(w.Past) != begunKept {
		t.Fatalf("left: %v, and %d are kept, want %d", w.Left, len(w.Past), begunKept)
	}
	for i, b := range w.Past {
		if b.Number != n-uint32(i) || b.Root != shm.AnySource || b.Lead != 0 {
			t.Errorf("%d: %+v", i, b)
		}
	}
	if a := testing.AllocsPerRun(100, func() { e.begun.add(st) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
