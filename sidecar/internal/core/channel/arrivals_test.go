package channel

import "testing"

// TestArrivals checks that an acknowledgement is due after its delay, which a later frame does
// not extend, or earlier after ackFrames frames or ackBytes bytes.
func TestArrivals(t *testing.T) {
	var a Arrivals
	a.Arrived(1)
	a.Owe(10, 5, 100, false)
	a.Arrived(2)
	if a.Owe(12, 5, 100, false); a.Due(14) || !a.Due(15) || !a.Untold() {
		t.Errorf("owed from 10 on for 5: it is due at %d, untold: %v", a.At(), a.Untold())
	}
	if a.Told(); a.Due(1<<40) || a.Untold() || a.At() != 0 {
		t.Error("what was told of is owed still")
	}
	a.Arrived(3)
	if a.Owe(20, 5, 100, true); !a.Due(20) {
		t.Error("an acknowledgement that is to go at once is not due")
	}
	a.Told()
	a.Arrived(3 + ackFrames)
	if !a.Due(21) {
		t.Errorf("%d frames are not acknowledged, and none is due", ackFrames)
	}
	a.Told()
	if a.Owe(30, 5, ackBytes, false); !a.Due(30) {
		t.Errorf("%d bytes are not acknowledged, and none is due", ackBytes)
	}
}
