package shm

import "testing"

func TestPlace(t *testing.T) {
	p := Place(0).Waiting(true)
	if q := p.Timed(true); !p.Waits() || !p.WaitsForGood() || !q.Waits() || q.WaitsForGood() || q.Timed(false) != p {
		t.Errorf("%#x: for good %v; with a time %#x: %v", p, p.WaitsForGood(), q, q.WaitsForGood())
	}
	if q := p.Waiting(false); q != 0 || q.Waits() || q.Timed(true).WaitsForGood() {
		t.Errorf("%#x after a wait", q)
	}
	const earlier = Place(1<<30 | 7) // set by earlier clients: a CPU, and the flag that the client computes
	if earlier.Waits() || !earlier.Waiting(true).WaitsForGood() {
		t.Errorf("%#x of an earlier release", earlier)
	}
}
