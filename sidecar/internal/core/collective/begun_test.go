package collective

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// TestBegunIsKept checks that the last collectives of a rank are listed, the latest first, in
// rows of one kind, and none before the first. Recording them allocates nothing.
func TestBegunIsKept(t *testing.T) {
	r := roomOf(t, []int32{0, 1})
	r.Attach(new(ranks.Session), 0)
	if past := r.Past(0); past != nil {
		t.Errorf("before the first: %+v", past)
	}
	st := &call{comm: r.members[0].comms[0], plan: new(coll.Plan)}
	other := &call{comm: &comm{context: 9, group: st.comm.group}, plan: st.plan, kind: coll.Barrier}
	begun := r.members[0].past
	const n = 3*begunRows + 2
	for i := range uint32(n) { // rows of 100 and more, with other collectives in between
		st.kind = coll.Barrier
		if i%2 == 0 {
			st.kind = coll.Scan
		}
		for range 100 + i {
			st.seq++
			begun.add(st)
			other.seq++
			begun.add(other)
		}
	}
	past := r.Past(0)
	if len(past) != begunRows {
		t.Fatalf("%d are kept, want %d", len(past), begunRows)
	}
	have := map[uint32]uint32{} // number of collectives of each communicator
	at := map[uint32]uint32{0: st.seq, 9: other.seq}
	for i, b := range past {
		if have[b.Context] += b.Count; b.Number != at[b.Context] || b.Root != shm.AnySource || b.Lead != 0 || b.Count < 100 {
			t.Errorf("%d: %+v, want number %d", i, b, at[b.Context])
		}
		at[b.Context] -= b.Count
	}
	if have[0] < 10*100 || have[9] < 4*100 {
		t.Errorf("%v collectives are known", have)
	}
	if a := testing.AllocsPerRun(100, func() { begun.add(st) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}

func BenchmarkBegun(b *testing.B) {
	r := roomOf(b, []int32{0, 1})
	r.Attach(new(ranks.Session), 0)
	st := &call{comm: r.members[0].comms[0], plan: new(coll.Plan)}
	for b.Loop() {
		st.seq++
		st.kind = coll.Kind(st.seq % 3)
		r.members[0].past.add(st)
	}
}
