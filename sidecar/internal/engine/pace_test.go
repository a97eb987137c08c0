package engine

import (
	"testing"
	"time"
)

const us = int64(time.Microsecond)

// turn is a turn of no length that p is told of, and a yield or sleep at once if p wants one.
func turn(p *pacer, now int64, work int) gear {
	g := p.turned(now, work)
	if g == gearYield {
		p.yields(now)
	}
	if g == gearSleep {
		p.sleeps()
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

// Beside somebody who computes the engine sleeps, tries a yield after a while,
// waits longer each time, and forgets it all after one quick yield.
func TestPacerOnCrowdedCore(t *testing.T) {
	p := newPacer(Wait{})
	now, pause := int64(1000), crowdedMin
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
		pause = min(2*pause, crowdedMax)
	}
	turn(&p, now, 0)
	now += us
	if got := turn(&p, now, 0); got != gearYield {
		t.Fatalf("after a quick yield: gear %d, want yield", got)
	}
	now += 3000 * us
	turn(&p, now, 0)
	if p.crowds.last != crowdedMin {
		t.Fatalf("a pause of %v after a quick yield, want %v", time.Duration(p.crowds.last), time.Duration(crowdedMin))
	}
}

// Who has slept has let others run until then: the work that woke it is no time to yield.
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

// So has who has yielded, however long that took.
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

// Who was to sleep and could not has let nobody run.
func TestPacerYieldsWhereItCannotSleep(t *testing.T) {
	p := newPacer(Wait{Yield: time.Nanosecond})
	now := int64(1000)
	turn(&p, now, 0)
	for range 5 {
		now += busyYield / 4
		if got := p.turned(now, 0); got != gearSleep {
			t.Fatalf("gear %d, want sleep", got)
		}
	}
	if got := turn(&p, now, 1); got != gearYield {
		t.Fatalf("work after sleeps that were none: gear %d, want yield", got)
	}
}

// Who copies messages keeps the core for a while, too, and is not slept beside: there is more
// to do afterwards, in less time. It says nothing of those who compute, either.
func TestPacerBesideCopies(t *testing.T) {
	for _, c := range []struct {
		cost int64
		work int
		want gear
		last int64 // twice as long as before, the same, or forgotten
	}{
		{crowdedAfter - 1, 0, gearYield, 0},
		{crowdedAfter - 1, copiedWork, gearYield, 0},
		{crowdedAfter, copiedWork - 1, gearSleep, 2 * crowdedMin},
		{crowdedAfter, copiedWork, gearYield, crowdedMin},
		{copiesMost - 1, copiedWork, gearYield, crowdedMin},
		{copiesMost, copiedWork, gearSleep, 2 * crowdedMin},
	} {
		p := newPacer(Wait{})
		p.crowds.last = crowdedMin
		if got := turn(&p, 1000, 0); got != gearYield {
			t.Fatalf("gear %d, want yield", got)
		}
		p.turned(1000+c.cost, c.work) // and no other yield
		if got := turn(&p, 1000+c.cost, 0); got != c.want || p.crowds.last != c.last {
			t.Errorf("after a yield of %v, work %d: gear %d, pause %v, want %d, %v", time.Duration(c.cost), c.work,
				got, time.Duration(p.crowds.last), c.want, time.Duration(c.last))
		}
	}
}

// What a turn copies before its yield is the engine's own time.
func TestPacerCountsYieldsAlone(t *testing.T) {
	p := newPacer(Wait{})
	now := int64(1000)
	turn(&p, now, 1)
	now += busyYield
	if got := p.turned(now, 1); got != gearYield {
		t.Fatalf("gear %d, want yield", got)
	}
	now += computesAfter // the turn itself
	p.yields(now)
	now += crowdedAfter - 1
	if turn(&p, now, 0); p.crowds.last != 0 || p.computes.last != 0 {
		t.Errorf("pauses of %v and %v after a short yield", time.Duration(p.crowds.last), time.Duration(p.computes.last))
	}
}

// TestPacerPolls: a bounded time, then as without. Waits after one in vain do not
// poll, until it is tried again; nor does a crowded engine.
func TestPacerPolls(t *testing.T) {
	const pollFor = 50 * us
	p := newPacer(Wait{Poll: time.Duration(pollFor)})
	now := int64(1000)
	for begin := now; now-begin < pollFor; now += us {
		if got := turn(&p, now, 0); got != gearPoll {
			t.Fatalf("idle for %d us: gear %d, want poll", (now-begin)/us, got)
		}
	}
	if got := turn(&p, now, 0); got != gearYield {
		t.Fatalf("after %d us: gear %d, want yield", pollFor/us, got)
	}
	wait := func() gear {
		now += us
		turn(&p, now, 1)
		now += us
		return turn(&p, now, 0)
	}
	for i := range penaltyMin {
		if got := wait(); got != gearYield {
			t.Fatalf("wait %d after one in vain: gear %d, want yield", i, got)
		}
	}
	if got := wait(); got != gearPoll {
		t.Fatalf("later: gear %d, want poll", got)
	}
	p.crowds.until = now + 10*us
	if got := wait(); got != gearSleep {
		t.Fatalf("crowded: gear %d, want sleep", got)
	}
}
