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
	for n := range uint32(8) {
		if !a.Take(units) || a.Take(1) {
			t.Fatalf("window %d: there is more or less credit than was granted", n)
		}
		if !b.Charge(units) || b.Unreported() != 0 {
			t.Fatalf("window %d: the receiver counts otherwise, or has %d bytes unreported", n, b.Unreported())
		}
		if b.Return(units); b.Unreported() != window {
			t.Fatalf("window %d: %d bytes of credit are unreported", n, b.Unreported())
		}
		old := a.Granted()
		if g := b.Grant(); !a.Grows(g) || a.Learn(g+1, window) || !a.Learn(g, window) || a.Grows(g) || a.Grows(old) {
			t.Fatalf("window %d: a grant of %d after %d is not taken as it should be", n, g, old)
		}
		b.Said()
	}
	if b.Charge(units + 1) {
		t.Error("a message beyond the credit is taken")
	}
}
