package channel

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// TestCredit checks that both sides count alike, also when the sums wrap around to 0. A side
// uses no more than it was granted, and ignores the older grant that a repeated frame carries.
func TestCredit(t *testing.T) {
	const window, units = 64 * wire.CreditUnit, 64
	var a, b Credit
	a.Init(window)
	b.Init(window)
	start := ^uint32(0) - 3*units // the sums are about to wrap around
	a.granted, a.used, b.grant, b.told, b.taken = start+units, start, start+units, start+units, start
	unreported := func() uint32 { return b.grant - b.told }
	for n := range uint32(8) {
		if !a.Take(units) || a.Take(1) {
			t.Fatalf("window %d: there is more or less credit than was granted", n)
		}
		if !b.Charge(units) || unreported() != 0 || b.Reports() || !b.Lacks(1) {
			t.Fatalf("window %d: the receiver counts otherwise, or has %d units unreported", n, unreported())
		}
		if b.Return(units); unreported() != units || !b.Reports() {
			t.Fatalf("window %d: %d units of credit are unreported", n, unreported())
		}
		old := a.Granted()
		if g := b.Grant(); !a.Grows(g) || a.Learn(g+1, window) || !a.Learn(g, window) || a.Grows(g) || a.Grows(old) {
			t.Fatalf("window %d: a grant of %d after %d is not taken as it should be", n, g, old)
		}
		b.Said()
	}
	if c := b; c.Charge(units + 1) {
		t.Error("a message beyond the credit is taken")
	}
	// The window is widened, and narrowed by what the sender had not used.
	a.used, b.taken = a.granted, b.grant
	b.Widen(2 * units)
	if g := b.Grant(); a.Learn(g, window) || !a.Learn(g, 2*window) || !a.Take(units/2) {
		t.Error("a wider window is not used")
	}
	if n := a.Yield(2 * units); n != 2*units-units/2 || a.Take(1) || !b.Narrow(n) || b.Charge(units) || b.width != units+units/2 {
		t.Errorf("%d units are given up, %d are the window", n, b.width)
	}
}
