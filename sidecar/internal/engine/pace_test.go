package engine

import (
	"testing"
	"time"
)

const us = int64(time.Microsecond)

func TestPacerYieldsThenSleeps(t *testing.T) {
	p := newPacer(Wait{Polls: 2})
	now := int64(1000)
	for i, want := range []gear{gearPoll, gearPoll, gearYield, gearYield} {
		if got := p.turned(now, 0); got != want {
			t.Fatalf("idle turn %d: gear %d, want %d", i, got, want)
		}
		now += us
	}
	if got := p.turned(now+int64(yieldDefault), 0); got != gearSleep {
		t.Fatalf("after %v of yields: gear %d, want sleep", yieldDefault, got)
	}
	if got := p.turned(now, 1); got != gearPoll {
		t.Fatalf("after work: gear %d, want poll", got)
	}
	if got := p.turned(now, 0); got != gearPoll {
		t.Fatalf("first idle turn after work: gear %d, want poll", got)
	}
}

func TestPacerNeverSleepsWhenToldSo(t *testing.T) {
	p := newPacer(Wait{Yield: -1})
	now := int64(1000)
	for range 100 {
		if got := p.turned(now, 0); got != gearYield {
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
		if got := p.turned(now, 0); got != gearYield {
			t.Fatalf("gear %d, want a try to yield", got)
		}
		now += 3000 * us
		if got := p.turned(now, 1); got != gearPoll {
			t.Fatalf("gear %d, want poll: there was work", got)
		}
		for _, at := range []int64{now, now + pause - 1} {
			if got := p.turned(at, 0); got != gearSleep {
				t.Fatalf("%v into a pause of %v: gear %d, want sleep", time.Duration(at-now), time.Duration(pause), got)
			}
		}
		now += pause
		p.turned(now, 1)
		pause = min(2*pause, crowdedMax)
	}
	p.turned(now, 0)
	now += us
	if got := p.turned(now, 0); got != gearYield {
		t.Fatalf("after a quick yield: gear %d, want yield", got)
	}
	now += 3000 * us
	p.turned(now, 0)
	if p.crowds.last != crowdedMin {
		t.Fatalf("a pause of %v after a quick yield, want %v", time.Duration(p.crowds.last), time.Duration(crowdedMin))
	}
}

// Who has slept has let others run until then: the work that woke it is no time to yield.
func TestPacerWorksAfterSleep(t *testing.T) {
	p := newPacer(Wait{Yield: time.Nanosecond})
	now := int64(1000)
	p.turned(now, 0)
	if got := p.turned(now+us, 0); got != gearSleep {
		t.Fatalf("gear %d, want sleep", got)
	}
	now += int64(time.Second)
	if got := p.turned(now, 1); got != gearPoll {
		t.Fatalf("work after a sleep: gear %d, want poll", got)
	}
	if got := p.turned(now+busyYield, 1); got != gearYield {
		t.Fatalf("work for %v after a sleep: gear %d, want yield", time.Duration(busyYield), got)
	}
}

// Who copies messages keeps the core for a while, too, and is not slept beside: there is more
// to do afterwards than a rank that computes leaves, or it lasts longer.
func TestPacerBesideCopies(t *testing.T) {
	for _, c := range []struct {
		cost int64
		work int
		want gear
	}{
		{crowdedAfter - 1, 0, gearYield},
		{crowdedAfter, copiedWork - 1, gearSleep},
		{crowdedAfter, copiedWork, gearYield},
		{copiesMost - 1, copiedWork, gearYield},
		{copiesMost, copiedWork, gearSleep},
	} {
		p := newPacer(Wait{})
		if got := p.turned(1000, 0); got != gearYield {
			t.Fatalf("gear %d, want yield", got)
		}
		p.turned(1000+c.cost, c.work)
		if got := p.turned(1000+c.cost, 0); got != c.want {
			t.Errorf("after a yield of %v with work %d: gear %d, want %d", time.Duration(c.cost), c.work, got, c.want)
		}
	}
}

// TestPacerPolls: a bounded time, then as without. Waits after one in vain do not
// poll, until it is tried again; nor does a crowded engine.
func TestPacerPolls(t *testing.T) {
	const pollFor = 50 * us
	p := newPacer(Wait{Poll: time.Duration(pollFor)})
	now := int64(1000)
	for begin := now; now-begin < pollFor; now += us {
		if got := p.turned(now, 0); got != gearPoll {
			t.Fatalf("idle for %d us: gear %d, want poll", (now-begin)/us, got)
		}
	}
	if got := p.turned(now, 0); got != gearYield {
		t.Fatalf("after %d us: gear %d, want yield", pollFor/us, got)
	}
	wait := func() gear {
		now += us
		p.turned(now, 1)
		now += us
		return p.turned(now, 0)
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
