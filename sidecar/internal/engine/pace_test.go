package engine

import (
	"testing"
	"time"
)

const us = int64(time.Microsecond)

// turn reports a turn of no length to p, followed by the yield or sleep that p requests.
func turn(p *pacer, now int64, work int) gear {
	g := p.afterTurn(now, work)
	if g == gearYield {
		p.beginYield(now)
	}
	if g == gearSleep {
		p.endSleep()
	}
	return g
}

func TestPacerYieldsThenSleeps(t *testing.T) {
	p := newPacer(Wait{Polls: 2})
	now := int64(1000)
	for i, want := range []gear{gearPoll, gearPoll, gearYield, gearYield} {
		if got := turn(&p, now, 0); got != want {
			t.Fatalf("idle turn %d: gear %d, want %d", i, got, want)
		}
		now += us
	}
	if got := turn(&p, now+int64(yieldDefault), 0); got != gearSleep {
		t.Fatalf("after %v of yields: gear %d, want sleep", yieldDefault, got)
	}
	if got := turn(&p, now, 1); got != gearPoll {
		t.Fatalf("after work: gear %d, want poll", got)
	}
	if got := turn(&p, now, 0); got != gearPoll {
		t.Fatalf("first idle turn after work: gear %d, want poll", got)
	}
}

func TestPacerNeverSleepsWhenToldSo(t *testing.T) {
	p := newPacer(Wait{Yield: -1})
	now := int64(1000)
	for range 100 {
		if got := turn(&p, now, 0); got != gearYield {
			t.Fatalf("gear %d, want yield", got)
		}
		now += int64(time.Second)
	}
}

// TestPacerOnSharedCPU checks that the engine sleeps if another process computes on its
// CPU, tries a yield after a while, waits longer each time, and forgets the back-off after
// one quick yield.
func TestPacerOnSharedCPU(t *testing.T) {
	p := newPacer(Wait{})
	now, pause := int64(1000), backoffMin
	for range 12 {
		if got := turn(&p, now, 0); got != gearYield {
			t.Fatalf("gear %d, want a try to yield", got)
		}
		now += 3000 * us
		if got := turn(&p, now, 1); got != gearPoll {
			t.Fatalf("gear %d, want poll: there was work", got)
		}
		for _, at := range []int64{now, now + pause - 1} {
			if got := turn(&p, at, 0); got != gearSleep {
				t.Fatalf("%v into a pause of %v: gear %d, want sleep", time.Duration(at-now), time.Duration(pause), got)
			}
		}
		now += pause
		turn(&p, now, 1)
		pause = min(2*pause, backoffMax)
	}
	turn(&p, now, 0)
	now += us
	if got := turn(&p, now, 0); got != gearYield {
		t.Fatalf("after a quick yield: gear %d, want yield", got)
	}
	now += 3000 * us
	turn(&p, now, 0)
	if p.idleYields.last != backoffMin {
		t.Fatalf("a pause of %v after a quick yield, want %v", time.Duration(p.idleYields.last), time.Duration(backoffMin))
	}
}

// TestPacerWorksAfterSleep checks that an engine that has slept works before it yields:
// other threads ran during the sleep.
func TestPacerWorksAfterSleep(t *testing.T) {
	p := newPacer(Wait{Yield: time.Nanosecond})
	now := int64(1000)
	turn(&p, now, 0)
	if got := turn(&p, now+us, 0); got != gearSleep {
		t.Fatalf("gear %d, want sleep", got)
	}
	now += int64(time.Second)
	if got := turn(&p, now, 1); got != gearPoll {
		t.Fatalf("work after a sleep: gear %d, want poll", got)
	}
	if got := turn(&p, now+busyYield, 1); got != gearYield {
		t.Fatalf("work for %v after a sleep: gear %d, want yield", time.Duration(busyYield), got)
	}
}

// TestPacerWorksAfterYield checks the same for an engine that has yielded, however long the
// yield took.
func TestPacerWorksAfterYield(t *testing.T) {
	p := newPacer(Wait{})
	now := int64(1000)
	turn(&p, now, 0)
	now += 3 * busyYield
	if got := turn(&p, now, 1); got != gearPoll {
		t.Fatalf("work after a yield: gear %d, want poll", got)
	}
	if got := turn(&p, now+busyYield-1, 1); got != gearPoll {
		t.Fatalf("work for less than %v after a yield: gear %d, want poll", time.Duration(busyYield), got)
	}
	if got := turn(&p, now+busyYield, 1); got != gearYield {
		t.Fatalf("work for %v after a yield: gear %d, want yield", time.Duration(busyYield), got)
	}
}

// TestPacerYieldsWhereItCannotSleep checks that a requested sleep that did not take place
// does not count as one.
func TestPacerYieldsWhereItCannotSleep(t *testing.T) {
	p := newPacer(Wait{Yield: time.Nanosecond})
	now := int64(1000)
	turn(&p, now, 0)
	for range 5 {
		now += busyYield / 4
		if got := p.afterTurn(now, 0); got != gearSleep {
			t.Fatalf("gear %d, want sleep", got)
		}
	}
	if got := turn(&p, now, 1); got != gearYield {
		t.Fatalf("work after sleeps that were none: gear %d, want yield", got)
	}
}

// TestPacerAfterCopies checks that a rank that copies messages, which keeps the CPU for a
// while, too, does not make the engine sleep: more work follows, sooner. It is no evidence
// of computation.
func TestPacerAfterCopies(t *testing.T) {
	for _, c := range []struct {
		cost int64
		work int
		want gear
		last int64 // twice as long as before, unchanged, or 0
	}{
		{slowYield - 1, 0, gearYield, 0},
		{slowYield - 1, copiedWork, gearYield, 0},
		{slowYield, copiedWork - 1, gearSleep, 2 * backoffMin},
		{slowYield, copiedWork, gearYield, backoffMin},
		{copyingMax - 1, copiedWork, gearYield, backoffMin},
		{copyingMax, copiedWork, gearSleep, 2 * backoffMin},
	} {
		p := newPacer(Wait{})
		p.idleYields.last = backoffMin
		if got := turn(&p, 1000, 0); got != gearYield {
			t.Fatalf("gear %d, want yield", got)
		}
		p.afterTurn(1000+c.cost, c.work) // without a yield
		if got := turn(&p, 1000+c.cost, 0); got != c.want || p.idleYields.last != c.last {
			t.Errorf("after a yield of %v, work %d: gear %d, pause %v, want %d, %v", time.Duration(c.cost), c.work,
				got, time.Duration(p.idleYields.last), c.want, time.Duration(c.last))
		}
	}
}

// TestPacerCountsYieldsAlone checks that the time in which a turn copies before its yield
// is not charged to it.
func TestPacerCountsYieldsAlone(t *testing.T) {
	p := newPacer(Wait{})
	now := int64(1000)
	turn(&p, now, 1)
	now += busyYield
	if got := p.afterTurn(now, 1); got != gearYield {
		t.Fatalf("gear %d, want yield", got)
	}
	now += slowBusyYield // duration of the turn
	p.beginYield(now)
	now += slowYield - 1
	if turn(&p, now, 0); p.idleYields.last != 0 || p.busyYields.last != 0 {
		t.Errorf("pauses of %v and %v after a short yield", time.Duration(p.idleYields.last), time.Duration(p.busyYields.last))
	}
}

// TestPacerPolls checks that an idle engine polls for a bounded time, again in each idle
// stretch, and not at all if another process computes on its CPU.
func TestPacerPolls(t *testing.T) {
	const pollFor = 50 * us
	p := newPacer(Wait{Poll: time.Duration(pollFor)})
	now := int64(1000)
	for range 3 {
		for begin := now; now-begin < pollFor; now += us {
			if got := turn(&p, now, 0); got != gearPoll {
				t.Fatalf("idle for %d us: gear %d, want poll", (now-begin)/us, got)
			}
		}
		if got := turn(&p, now, 0); got != gearYield {
			t.Fatalf("after %d us: gear %d, want yield", pollFor/us, got)
		}
		now += us
		turn(&p, now, 1)
		now += us
	}
	p.idleYields.until = now + 10*us
	if got := turn(&p, now, 0); got != gearSleep {
		t.Fatalf("shared CPU: gear %d, want sleep", got)
	}
}
