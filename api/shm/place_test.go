package shm

import "testing"

func TestPlace(t *testing.T) {
	if cpu, known := Place(0).CPU(); known {
		t.Errorf("the zero place is on processor %d", cpu)
	}
	for _, cpu := range []int{0, 1, 1023, 65534} {
		p := Place(0).On(7).Waiting(true).Computing(true).On(cpu)
		if got, known := p.CPU(); got != cpu || !known || !p.Waits() || !p.Computes() {
			t.Errorf("%#x: processor %d, %v, waits %v, computes %v; want %d and all true", p, got, known, p.Waits(), p.Computes(), cpu)
		}
		if q := p.Timed(true); !p.WaitsForGood() || q.WaitsForGood() || !q.Waits() || q.Timed(false) != p {
			t.Errorf("%#x: for good %v; with a time %#x: %v", p, p.WaitsForGood(), q, q.WaitsForGood())
		}
		p = p.Waiting(false)
		if got, _ := p.CPU(); got != cpu || p.Waits() || !p.Computes() {
			t.Errorf("%#x after a wait", p)
		}
		if p = p.Computing(false); p != Place(0).On(cpu) {
			t.Errorf("%#x, want only the processor %d", p, cpu)
		}
	}
	if _, known := Place(0).Waiting(true).On(-1).CPU(); known {
		t.Error("a processor that the kernel did not tell is known")
	}
}
