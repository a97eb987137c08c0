package engine

import "time"

// gear is what an engine with nothing to do does next (DESIGN §8).
type gear uint8

const (
	gearPoll gear = iota
	gearYield
	gearSleep
)

// A yield that lasts crowdedAfter has given the core to somebody who computes,
// and who keeps it until his slice ends, milliseconds later. The engine then
// sleeps instead, since a wake-up preempts and a yield does not. After
// crowdedMin, and twice as long each time, it tries a yield again.
//
// A rank that exchanges many large messages copies for as long before it looks or yields,
// and to be woken for each of them takes both three times as long as to wait for it. A yield
// of less than copiesMost, with so many pieces of work after it, says neither: what came may
// be others'.
const (
	crowdedAfter = int64(100 * time.Microsecond)
	copiesMost   = int64(400 * time.Microsecond)
	copiedWork   = 16
	crowdedMin   = int64(time.Millisecond)
	crowdedMax   = int64(time.Second)
)

// A busy engine yields, too, so often: with fewer cores than processes a rank
// whose message has come would otherwise wait for the engine's time slice to end,
// which the kernel looks at every few milliseconds only. It costs half a
// microsecond where nobody waits, and is left where somebody computes: who has not
// given the core back after computesAfter. Another busy engine does so sooner.
const (
	busyYield     = int64(100 * time.Microsecond)
	computesAfter = int64(time.Millisecond)
)

// pacer chooses the gear. Times are nanoseconds of the engine's clock.
type pacer struct {
	polls    int
	pollFor  int64
	yieldFor int64 // negative: never sleep

	idle    int
	begun   int64 // start of the first idle turn
	since   int64 // start of the yields
	yielded int64 // when the last yield began, 0: judged
	let     int64 // when others had last been let run, by a yield or a sleep
	slept   bool  // until this turn

	crowds   doubt // somebody computes, and keeps the core for longer than an idle engine can wait,
	computes doubt // or for longer than a busy one can

	skip, penalty int // idle stretches that do not poll: now, and at the last time
}

func newPacer(w Wait) pacer {
	p := pacer{polls: w.Polls, pollFor: int64(w.Poll), yieldFor: int64(w.Yield)}
	if w.Yield == 0 {
		p.yieldFor = int64(yieldDefault)
	}
	return p
}

// turned is told after each turn how much work it did; now is the turn's
// start.
func (p *pacer) turned(now int64, work int) gear {
	p.judge(now, work)
	if p.slept {
		p.let, p.slept = now, false
	}
	if work > 0 {
		if p.idle > 0 && p.since == 0 {
			p.penalty /= 2 // polling was right
		}
		p.idle = 0
		if now-p.let < busyYield || now < p.computes.until {
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
	if p.yieldFor >= 0 && (p.crowded(now) || now-p.since >= p.yieldFor) {
		return gearSleep
	}
	return gearYield
}

// yields is told when the yield begins that turned has asked for: the turn before it may have
// copied for as long as a computing rank keeps the core.
func (p *pacer) yields(now int64) { p.let, p.yielded = now, now }

// sleeps is told when the sleep is over that turned has asked for, unless there was none.
func (p *pacer) sleeps() { p.slept = true }

// polling says whether an idle turn is followed by another at once: until the
// time for it is over, and not where the processor is shared. Where nothing came
// in all that time the next waits begin with a yield, more of them each time.
func (p *pacer) polling(now int64) bool {
	if p.pollFor == 0 || p.since != 0 || p.crowded(now) {
		return false
	}
	if p.idle == 1 && p.skip > 0 {
		p.skip--
		return false
	}
	if now-p.begun < p.pollFor {
		return true
	}
	p.penalty = min(max(2*p.penalty, penaltyMin), penaltyMax)
	p.skip = p.penalty
	return false
}

// Waits that do not poll after one that did so in vain.
const (
	penaltyMin = 16
	penaltyMax = 4096
)

func (p *pacer) crowded(now int64) bool { return now < p.crowds.until }

// judge looks at what the last yield cost, and at how much work there was after it.
func (p *pacer) judge(now int64, work int) {
	if p.yielded == 0 {
		return
	}
	cost := now - p.yielded
	p.yielded, p.let = 0, now
	if cost < crowdedAfter || cost >= copiesMost || work < copiedWork {
		p.crowds.judge(now, cost >= crowdedAfter)
	}
	p.computes.judge(now, cost >= computesAfter)
}

// doubt keeps off yields for a time that doubles as long as they go on to be bad.
type doubt struct {
	until int64
	last  int64 // how long that was
}

func (d *doubt) judge(now int64, bad bool) {
	if !bad {
		d.last = 0
		return
	}
	d.last = min(max(2*d.last, crowdedMin), crowdedMax)
	d.until = now + d.last
}
