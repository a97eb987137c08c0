package verbs

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// passTime advances the clock of the failures.
func passTime(c *conn, d time.Duration) {
	fails := c.history().fails
	for ends, f := range fails {
		f.since = f.since.Add(-d)
		fails[ends] = f
	}
}

// TestLentTriedAgain checks that a peer that has refused a queue pair often is asked
// again after a while, once each time, and that the queue pair is made when the peer can.
func TestLentTriedAgain(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	c := a.conns[0]
	b.lending.lentQPs += lentQPsMax // those of its other peers
	var err error
	for range failsMax {
		if _, _, err = a.read(t, b, 1, false, true); errors.Is(err, errFails) {
			break
		}
	}
	if !errors.Is(err, errFails) {
		t.Fatalf("the peer is asked without end: %v", err)
	}
	asked := c.lastLent
	for range 2 {
		passTime(c, failsPause)
		if _, _, err := a.read(t, b, 1, false, true); !errors.Is(err, errFails) {
			t.Errorf("refused again: %v", err)
		}
	}
	if n := c.lastLent - asked; n != 2 {
		t.Errorf("in twice the pause it is asked %d times", n)
	}
	b.lending.lentQPs -= lentQPsMax
	if _, _, err := a.read(t, b, 1, false, true); !errors.Is(err, errFails) {
		t.Errorf("within the pause: %v", err)
	}
	passTime(c, failsPause)
	if dst, src, err := a.read(t, b, 2, false, true); err != nil || !bytes.Equal(dst, src) {
		t.Errorf("when it has room: %v, or the bytes are not there", err)
	}
}

// TestLentDeviceRefuses checks that a device that makes no queue pair is not asked for
// each message.
func TestLentDeviceRefuses(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	a.app.noPairs = true
	for range 2 * failsMax {
		if _, _, err := a.read(t, b, 1, true, true); err == nil {
			t.Fatal("there is a queue pair")
		}
	}
	if a.app.asked != failsMax {
		t.Errorf("the device is asked %d times, want %d", a.app.asked, failsMax)
	}
}

// TestLentOfNoUse checks that a peer that answers for each queue pair, and ends it before
// its first operation has completed, is not asked for ever.
func TestLentOfNoUse(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	r, _ := b.ref(true, 0, 4096)
	k, err := b.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := a.ref(false, 0, 4096)
	for range 2 * failsMax {
		if err := a.Read(0, 1, d, k); err == nil {
			t.Fatal("there is a queue pair")
		}
		a.pass(b)
		b.Deregister(k)
		a.pass(b)
	}
	if n := a.conns[0].lastLent; n != failsMax {
		t.Errorf("it is asked for %d queue pairs, want %d", n, failsMax)
	}
}

// TestForgivenFailures checks that the count of failures does not fall below zero.
func TestForgivenFailures(t *testing.T) {
	now := time.Now()
	f := failures{n: 3, since: now}
	for after, want := range map[time.Duration]int{0: 3, failsPause - 1: 3, failsPause: 2, 2*failsPause + 1: 1, 1000 * failsPause: 0} {
		if n := f.at(now.Add(after)).n; n != want {
			t.Errorf("after %v: %d, want %d", after, n, want)
		}
	}
}
