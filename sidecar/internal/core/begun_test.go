package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// TestBegunIsKept: the last collectives of a rank are known, the last ones first, in
// rows of one kind, also when it has left, and none before the first. Keeping them
// allocates nothing.
func TestBegunIsKept(t *testing.T) {
	c, _ := vectored(t)
	e := c.hosted[0]
	if w := c.WaitsOf(0); w.Past != nil {
		t.Errorf("before the first: %+v", w.Past)
	}
	st := &collective{comm: e.session.comms[0], plan: new(coll.Plan)}
	other := &collective{comm: &comm{context: 9, group: st.comm.group}, plan: st.plan, kind: coll.Barrier}
	const n = 3*begunKept + 2
	for i := range uint32(n) { // rows of 100 and more, with others in between
		st.kind = coll.Barrier
		if i%2 == 0 {
			st.kind = coll.Scan
		}
		for range 100 + i {
			st.seq++
			e.begun.add(st)
			other.seq++
			e.begun.add(other)
		}
	}
	c.Detach(4, 0, nil)
	w := c.WaitsOf(0)
	if !w.Left || len(w.Past) != begunKept {
		t.Fatalf("left: %v, and %d are kept, want %d", w.Left, len(w.Past), begunKept)
	}
	have := map[uint32]uint32{} // how many of a communicator
	at := map[uint32]uint32{0: st.seq, 9: other.seq}
	for i, b := range w.Past {
		if have[b.Context] += b.Count; b.Number != at[b.Context] || b.Root != shm.AnySource || b.Lead != 0 || b.Count < 100 {
			t.Errorf("%d: %+v, want number %d", i, b, at[b.Context])
		}
		at[b.Context] -= b.Count
	}
	if have[0] < 10*100 || have[9] < 4*100 {
		t.Errorf("%v collectives are known", have)
	}
	if a := testing.AllocsPerRun(100, func() { e.begun.add(st) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

func BenchmarkBegun(b *testing.B) {
	c, _ := vectored(b)
	e := c.hosted[0]
	st := &collective{comm: e.session.comms[0], plan: new(coll.Plan)}
	for b.Loop() {
		st.seq++
		st.kind = coll.Kind(st.seq % 3)
		e.begun.add(st)
	}
}
