package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Run does turns until ctx ends, on a thread of its own.
func (e *Engine) Run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := context.AfterFunc(ctx, func() { _ = e.mail.send(func(*Engine) {}) }) // wakes the sleep
	defer stop()
	pace := newPacer(e.cfg.Wait)
	for ctx.Err() == nil {
		work := e.Turn()
		if work > 0 {
			e.turns.Busy++
		} else {
			e.turns.Idle++
		}
		e.Breathe(work)
		switch pace.turned(e.now, work) {
		case gearYield:
			e.turns.Yields++
			e.setSlice(false)
			pace.yields(e.clock())
			wake.Yield()
		case gearSleep:
			if e.doze() {
				pace.sleeps()
			}
		}
	}
	// Those who wait for an answer get one.
	for _, f := range e.mail.close() {
		f(e)
	}
	e.refuseAll(errStopped)
}

// breathIdle and breathBusy are how long the goroutine of the turn keeps its thread before it
// goes through Go's scheduler, with nothing to do and with something: less than the 10 ms from
// which on the runtime's monitor ends a goroutine's slice by force (forcePreemptNS in
// runtime/proc.go). They take 16 us.
//
// A turn never goes there by itself, so that the monitor sees one slice without an end. It
// takes such a goroutine's processor away when it meets it in a call, and looks every 20 us
// after that, for some 4 ms, at times on the processor of a rank that computes: a wake-up in
// each message where most of the time goes into calls of C, and 2,000 a second where the
// engine sleeps between messages.
const breathIdle, breathBusy = int64(5 * time.Millisecond), int64(8 * time.Millisecond)

// forced is after how long a call the monitor has taken the processor away.
const forced = int64(10 * time.Millisecond)

// Breathe goes through Go's scheduler now and then, where a link calls C; it is told what the
// last turn had to do, since an idle one is the better time. Run does it by itself, and before
// a sleep, and callers that do the turns themselves may.
func (e *Engine) Breathe(work int) {
	after := breathBusy
	if work == 0 {
		after = breathIdle
	}
	if e.can[linkRemote].CallsC {
		e.breathe(after)
	}
}

func (e *Engine) breathe(after int64) {
	if e.now-e.breath >= after {
		runtime.Gosched()
		e.breath = e.now
	}
}

// setSlice asks for the thread's time slice.
func (e *Engine) setSlice(short bool) {
	if err := e.slice.set(short); err != nil {
		e.cfg.Log.Warn("transfers may have to wait for computing ranks", "cause", err)
	}
}

// doze sleeps, after all that makes sleeping cheap, and reports whether it did.
func (e *Engine) doze() bool {
	e.setSlice(true)
	e.breathe(breathBusy)
	return e.sleep()
}

// sleep blocks until there may be work, and reports whether it did.
func (e *Engine) sleep() bool {
	d, may := e.Rest()
	if may {
		e.asleep.Store(true)
		e.sleeper.sleep(d)
		woke := e.clock()
		if woke-e.now >= forced {
			e.breath = woke
		}
		e.pulse.Store(woke)
		e.asleep.Store(false)
	}
	e.Rise()
	return may
}

// Rest reports whether the engine may sleep now, and for how long, until Rise. Run asks
// it, and callers that do the turns themselves. Applications are told first, then looked
// at once more, so that nothing they publish meanwhile is missed; peers have been told
// before.
func (e *Engine) Rest() (d time.Duration, may bool) {
	if e.core.Doze() {
		return 0, false
	}
	e.turns.Sleeps++
	for _, a := range e.active {
		a.Idle()
		a.SetSleeping(true)
	}
	ready := e.Called()
	d = e.untilTimer()
	return d, !ready && !e.unfinished() && !e.arm()
}

// arm prepares the remote link for a sleep, and reports whether it has work already. The
// local one has none that the core does not know of.
func (e *Engine) arm() bool {
	arm := e.can[linkRemote].Arm
	return arm != nil && arm()
}

// Rise ends what Rest has begun.
func (e *Engine) Rise() {
	for _, a := range e.active {
		a.SetSleeping(false)
	}
}

// Called reports that an application has something to take, or another goroutine: they
// ring for a sleeping engine.
func (e *Engine) Called() bool {
	called := e.mail.waiting.Load()
	for _, a := range e.active {
		called = called || a.Ready() && !e.core.Held(a.id)
	}
	return called
}

// unfinished reports that something is left for a turn that time alone, or the
// end of the last turn, has brought about.
func (e *Engine) unfinished() bool {
	if e.mail.waiting.Load() || len(e.joining) > 0 || len(e.again) > 0 && e.core.Renews() || e.core.Pending() || e.core.Failed() != nil && !e.failed {
		return true
	}
	for _, a := range e.active {
		if a.Unpublished() {
			return true
		}
	}
	return false
}

// pollPause bounds a sleep while peers may write to memory without a notice, or
// while an application may make room for completions.
const pollPause = time.Millisecond

// watches reports that there is memory which only a look tells about.
func (e *Engine) watches() bool {
	for _, a := range e.active {
		if a.Kept() {
			return true
		}
	}
	return e.core.Polled()
}

// untilTimer is how long the core can do without Tick.
func (e *Engine) untilTimer() time.Duration {
	e.now = e.clock()
	next := e.core.Tick(e.now)
	e.nextTick = 0
	limit := time.Minute
	if e.watches() {
		limit = pollPause
	}
	if next == 0 {
		return limit
	}
	return min(max(time.Duration(next-e.now), 0), limit)
}
