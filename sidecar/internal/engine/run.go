package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// Run runs turns until ctx ends, on a thread of its own.
func (e *Engine) Run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop := context.AfterFunc(ctx, func() { _ = e.inbox.post(func(*Engine) {}) }) // wakes the sleep
	defer stop()
	pace := newPacer(e.cfg.Wait)
	for ctx.Err() == nil {
		work := e.Turn()
		if work > 0 {
			e.turns.Busy++
		} else {
			e.turns.Idle++
		}
		e.Gosched(work)
		switch pace.afterTurn(e.now, work) {
		case gearYield:
			e.turns.Yields++
			e.setSlice(false)
			pace.beginYield(e.clock())
			wake.Yield()
		case gearSleep:
			if e.sleep() {
				pace.endSleep()
			}
		}
	}
	// Callers that wait for an answer receive one.
	for _, f := range e.inbox.close() {
		f(e)
	}
	e.refuseAll(errStopped)
}

// goschedIdle and goschedBusy are how long the turn goroutine keeps its thread before it
// enters Go's scheduler, with nothing to do and with work to do: less than the 10 ms after
// which the runtime's monitor ends a goroutine's time slice by force (forcePreemptNS in
// runtime/proc.go). The two values differ so that idle turns, where the 16 us of a call
// cost least, enter the scheduler first.
//
// A turn never enters the scheduler by itself, so that the monitor sees one slice without
// an end. The monitor takes the P of such a goroutine away when it finds the goroutine in a
// call, and then polls every 20 us for some 4 ms, at times on the CPU of a rank that
// computes: one wake-up for each message if most of the time is spent in calls of C, and
// 2,000 a second if the engine sleeps between messages.
const goschedIdle, goschedBusy = int64(5 * time.Millisecond), int64(8 * time.Millisecond)

// forced is the duration of a call after which the monitor has taken the P away.
const forced = int64(10 * time.Millisecond)

// Gosched enters Go's scheduler every few milliseconds if a link calls C. work is the work
// of the last turn, because an idle turn is the better time. Run calls it after each turn
// and before each sleep; callers that run the turns themselves may call it.
func (e *Engine) Gosched(work int) {
	after := goschedBusy
	if work == 0 {
		after = goschedIdle
	}
	if e.can[linkRemote].CallsC {
		e.gosched(after)
	}
}

func (e *Engine) gosched(after int64) {
	if e.now-e.lastGosched >= after {
		runtime.Gosched()
		e.lastGosched = e.now
	}
}

// setSlice requests the short time slice for the thread, or the system's own.
func (e *Engine) setSlice(short bool) {
	if err := e.slice.set(short); err != nil {
		e.cfg.Log.Warn("transfers may have to wait for computing ranks", "cause", err)
	}
}

// sleep requests the short slice, enters Go's scheduler if it is time, and sleeps. It
// reports whether the engine slept.
func (e *Engine) sleep() bool {
	e.setSlice(true)
	e.gosched(goschedBusy)
	return e.block()
}

// block blocks until there may be work, and reports whether it blocked.
func (e *Engine) block() bool {
	d, may := e.PrepareSleep()
	if may {
		e.asleep.Store(true)
		e.hear(e.sleeper.sleep(d))
		woke := e.clock()
		if woke-e.now >= forced {
			e.lastGosched = woke
		}
		e.lastTurn.Store(woke)
		e.asleep.Store(false)
	}
	e.CancelSleep()
	return may
}

// PrepareSleep reports whether the engine may sleep now, and for how long at most.
// CancelSleep must follow. Run calls it, and callers that run the turns themselves.
// Applications are told to ring the doorbell first, then their rings are polled once more,
// so that no descriptor published meanwhile is missed; the core tells the peers before
// that.
func (e *Engine) PrepareSleep() (d time.Duration, may bool) {
	if e.core.PrepareSleep() {
		return 0, false
	}
	e.turns.Sleeps++
	for _, a := range e.visits.list {
		a.Idle()
		a.SetSleeping(true)
	}
	ready := e.HasInput()
	d = e.untilTimer()
	return d, !ready && !e.unfinished() && !e.arm()
}

// arm prepares the remote link and the pending copies of both links for a sleep, and reports
// whether there is work already. Of the local link, the core knows all other work.
func (e *Engine) arm() bool {
	arm := e.can[linkRemote].Arm
	return arm != nil && arm() || e.cfg.Copies.Arm()
}

// CancelSleep ends the state that PrepareSleep began: applications and channels need not ring
// any more.
func (e *Engine) CancelSleep() {
	e.cfg.Copies.Disarm()
	for _, a := range e.visits.list {
		a.SetSleeping(false)
	}
}

// HasInput reports whether an application has published a descriptor that may be taken, or
// another goroutine has posted a call. Both ring the doorbell of a sleeping engine.
func (e *Engine) HasInput() bool {
	called := e.inbox.waiting.Load()
	for _, a := range e.visits.list {
		called = called || a.Ready() && !e.core.Held(a.id)
	}
	return called
}

// unfinished reports whether a turn has work that arises from time alone, or from the end
// of the last turn.
func (e *Engine) unfinished() bool {
	if e.folds.unfinished() || e.inbox.waiting.Load() || len(e.joining) > 0 || len(e.reattaching) > 0 && e.core.Renews() || e.core.Pending() || e.core.Failed() != nil && !e.failed {
		return true
	}
	for _, a := range e.visits.list {
		if a.Unpublished() {
			return true
		}
	}
	return false
}

// pollPause bounds a sleep while peers may write to memory without a notification, or while
// an application may make room for completions without ringing.
const pollPause = time.Millisecond

// watches reports whether only polling detects changes of some memory.
func (e *Engine) watches() bool {
	for _, a := range e.visits.list {
		if a.Kept() {
			return true
		}
	}
	return e.core.Polled()
}

// untilTimer returns how long the core can go without a Tick.
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
