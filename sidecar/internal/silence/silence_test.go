package silence

import "testing"

// TestSilenceBegins checks that a silence needs many turns and a time, whichever comes last, or a few turns
// and a long time, and that the next one needs both again.
func TestSilenceBegins(t *testing.T) {
	const step = int64(Time) / (4 * Turns) // turns alone would take a quarter of Time
	for name, c := range map[string]struct {
		turns int
		step  int64
		after int // calls until a silence begins
	}{
		"fast turns":      {1, step, 4 * Turns},
		"slow turns":      {1, int64(SlowTime) / SlowTurns, SlowTurns},
		"slower turns":    {1, 10 * int64(Time), SlowTurns},
		"many at a time":  {Turns, step, 4 * Turns},
		"exactly so many": {1, int64(Time) / Turns, Turns},
	} {
		var x Clock
		now := int64(0)
		for round := range 3 {
			for n := 1; ; n++ {
				now += c.step
				if !x.IsOver(c.turns, now) {
					continue
				}
				if n != c.after {
					t.Errorf("%s, round %d: a silence begins after %d calls, want %d", name, round, n, c.after)
				}
				break
			}
		}
	}
}

// TestLooksKeepTheirDistance checks that a look follows the last one after LookInterval, in the first
// turn that is not earlier, and at once if it is asked for.
func TestLooksKeepTheirDistance(t *testing.T) {
	var c Clock
	now, last, looks := int64(5), int64(-1), 0
	for now < 1e6 {
		if c.MayLook(now) {
			if gap := now - last; last >= 0 && (gap < int64(LookInterval) || gap >= int64(LookInterval)+7) {
				t.Fatalf("a look at %d after one at %d", now, last)
			}
			last = now
			looks++
		}
		now += 7
	}
	if looks != 50 {
		t.Errorf("%d looks in a millisecond, want 50", looks)
	}
	now = last
	if c.MayLook(now + 1) {
		t.Error("a look right after another one")
	}
	if c.LookNow(); !c.MayLook(now+1) || c.MayLook(now+2) {
		t.Error("a look that is asked for does not take place, or twice")
	}
}
