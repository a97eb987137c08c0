package channel

import "testing"

// TestNotices: they are turned off after many frames without a sleep, on before a sleep, and
// each change is to be said once.
func TestNotices(t *testing.T) {
	var n Notices
	if n.Sleep(10) || n.Awake(10+63, 64) || n.Unsaid() || n.Off() {
		t.Error("there is a change before there was much")
	}
	if !n.Awake(10+64, 64) || !n.Off() || !n.Unsaid() {
		t.Error("notices are on after 64 frames without a sleep")
	}
	if n.Said(); n.Awake(1000, 64) || n.Unsaid() {
		t.Error("it is to be said twice")
	}
	if !n.Sleep(1000) || n.Off() || !n.Unsaid() {
		t.Error("notices are off before a sleep")
	}
	if n.Said(); n.Sleep(1000) || n.Awake(1063, 64) {
		t.Error("there is a change without a reason")
	}
}
