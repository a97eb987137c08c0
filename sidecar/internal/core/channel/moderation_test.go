package channel

import "testing"

// TestModeration checks that notifications are turned off after many frames without a sleep
// and on before a sleep, and that each change is announced to the sender once.
func TestModeration(t *testing.T) {
	var n Moderation
	if n.TurnOn(10) || n.TurnOff(10+63, 64) || n.Changed() || n.Off() {
		t.Error("there is a change after few frames")
	}
	if !n.TurnOff(10+64, 64) || !n.Off() || !n.Changed() {
		t.Error("notifications are on after 64 frames without a sleep")
	}
	if n.Announced(); n.TurnOff(1000, 64) || n.Changed() {
		t.Error("the sender is told twice")
	}
	if !n.TurnOn(1000) || n.Off() || !n.Changed() {
		t.Error("notifications are off before a sleep")
	}
	if n.Announced(); n.TurnOn(1000) || n.TurnOff(1063, 64) {
		t.Error("there is a change without a reason")
	}
}
