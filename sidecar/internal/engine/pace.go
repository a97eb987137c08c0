package engine

import "time"

// gear is what an engine does after a turn: poll, yield, or sleep.
type gear uint8

const (
	gearPoll gear = iota
	gearYield
	gearSleep
)

// A yield that lasts slowYield has passed the CPU to a process that computes and keeps it
// until its time slice ends, milliseconds later. The engine then sleeps instead, because a
// wake-up preempts the process and the end of a yield does not. After backoffMin, and twice
// as long each time, the engine tries a yield again.
//
// A rank that exchanges many large messages copies for as long before it polls or yields,
// and waking the engine for each message takes both sides three times as long as waiting
// does. A yield of less than copyingMax with copiedWork pieces of work after it is no
// evidence in either direction: the work may come from other ranks.
const (
	slowYield  = int64(100 * time.Microsecond)
	copyingMax = int64(400 * time.Microsecond)
	copiedWork = 16
	backoffMin = int64(time.Millisecond)
	backoffMax = int64(time.Second)
)

// A busy engine yields, too, every busyYield: with fewer CPUs than processes, a rank whose
// message has arrived would otherwise wait for the end of the engine's time slice, which
// the kernel checks every few milliseconds only. A yield costs half a microsecond if no
// other process is runnable. The engine stops these yields if a process computes, that is
// if a yield lasted slowBusyYield. A busy engine of another sidecar returns the CPU sooner.
const (
	busyYield     = int64(100 * time.Microsecond)
	slowBusyYield = int64(time.Millisecond)
)

// pacer chooses the gear. Times are nanoseconds of the engine's clock.
type pacer struct {
	polls    int
	pollFor  int64
	yieldFor int64 // negative: the engine never sleeps

	idle      int   // idle turns since the last busy one
	begun     int64 // start of the first idle turn
	since     int64 // start of the yields; 0: none since the last busy turn
	yielded   int64 // start of the last yield; 0: judged
	othersRan int64 // time of the last yield or sleep
	slept     bool  // the engine slept after the last turn

	idleYields backoff // another process computes, and keeps the CPU longer than an idle engine can wait
	busyYields backoff // as idleYields, for longer than a busy engine can wait
}

func newPacer(w Wait) pacer {
	p := pacer{polls: w.Polls, pollFor: int64(w.Poll), yieldFor: int64(w.Yield)}
	if w.Yield == 0 {
		p.yieldFor = int64(yieldDefault)
	}
	return p
}

// afterTurn returns what to do after a turn that began at now and did that much work.
func (p *pacer) afterTurn(now int64, work int) gear {
	p.judge(now, work)
	if p.slept {
		p.othersRan, p.slept = now, false
	}
	if work > 0 {
		p.idle = 0
		if now-p.othersRan < busyYield || now < p.busyYields.until {
			return gearPoll
		}
		return gearYield
	}
	p.idle++
	if p.idle == 1 {
		p.begun, p.since = now, 0
	}
	if p.idle <= p.polls || p.polling(now) {
		return gearPoll
	}
	if p.since == 0 {
		p.since = now
	}
	if p.yieldFor >= 0 && (p.computingOnSameCPU(now) || now-p.since >= p.yieldFor) {
		return gearSleep
	}
	return gearYield
}

// beginYield notes the start of the yield that afterTurn requested: the turn before it may
// have copied for as long as a computing rank keeps the CPU.
func (p *pacer) beginYield(now int64) { p.othersRan, p.yielded = now, now }

// endSleep notes that the sleep that afterTurn requested took place.
func (p *pacer) endSleep() { p.slept = true }

// polling reports whether an idle turn is followed by another one at once: until pollFor is
// over, unless another process computes on the CPU.
func (p *pacer) polling(now int64) bool {
	return p.since == 0 && now-p.begun < p.pollFor && !p.computingOnSameCPU(now)
}

func (p *pacer) computingOnSameCPU(now int64) bool { return now < p.idleYields.until }

// judge evaluates how long the last yield took and how much work followed it.
func (p *pacer) judge(now int64, work int) {
	if p.yielded == 0 {
		return
	}
	cost := now - p.yielded
	p.yielded, p.othersRan = 0, now
	if cost < slowYield || cost >= copyingMax || work < copiedWork {
		p.idleYields.judge(now, cost >= slowYield)
	}
	p.busyYields.judge(now, cost >= slowBusyYield)
}

// backoff suspends yields for a time that doubles while they stay too long.
type backoff struct {
	until int64
	last  int64 // the last such time
}

func (d *backoff) judge(now int64, bad bool) {
	if !bad {
		d.last = 0
		return
	}
	d.last = min(max(2*d.last, backoffMin), backoffMax)
	d.until = now + d.last
}
