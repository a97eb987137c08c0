package sockets

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// TestClockReadsTheTimeSeldom checks that a silence begins with a poll that reads the time, that looks
// read it every few polls only, and that a long poll, or a sleep, makes the next one read it.
func TestClockReadsTheTimeSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin = time.Now() // of the bubble, whose clock stands still
		var c Clock
		poll := func(n int) (over, looks int) {
			for range n {
				if c.IsOver() {
					over++
				}
				if c.MayLook() {
					looks++
				}
			}
			return over, looks
		}
		if over, looks := poll(10 * silence.Turns); over != 0 || looks != 1 {
			t.Errorf("without a time, %d silences begin, with %d looks; want one look", over, looks)
		}
		time.Sleep(silence.Time)
		if over, _ := poll(silence.Turns); over != 1 {
			t.Errorf("after %v and %d polls %d silences begin", silence.Time, silence.Turns, over)
		}
		c = Clock{}
		if over, _ := poll(silence.Turns - silence.SlowTurns); over != 0 {
			t.Errorf("%d silences begin after %d polls", over, silence.Turns-silence.SlowTurns)
		}
		time.Sleep(silence.SlowTime)
		if over, _ := poll(silence.SlowTurns); over != 1 {
			t.Errorf("after %v and few polls %d silences begin", silence.SlowTime, over)
		}
		for name, cause := range map[string]func(){"a poll of 16 KiB": func() { c.Moved(16 << 10) }, "a sleep": c.LookNow, "nothing": func() {}} {
			poll(2 * lookPolls)
			for !c.MayLook() { // reads the time now, and not in the next polls
				time.Sleep(silence.LookInterval)
				c.IsOver()
			}
			time.Sleep(silence.LookInterval)
			cause()
			if c.IsOver(); c.MayLook() != (name != "nothing") {
				t.Errorf("after %s, the next poll looks: %t", name, name == "nothing")
			}
		}
	})
}
