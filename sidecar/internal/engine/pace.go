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
const (
	crowdedAfter = int64(100 * time.Microsecond)
	crowdedMin   = int64(time.Millisecond)
	crowdedMax   = int64(time.Second)
)

// A busy engine yields, too, so often: with fewer cores than processes a rank
// whose message has come would otherwise wait for the engine's time slice to end,
// which the kernel looks at every few milliseconds only. It costs half a
// microsecond where nobody waits, and is left where somebody computes (judge).
const busyYield = int64(100 * time.Microsecond)

// pacer chooses the gear. Times are nanoseconds of the engine's clock.
type pacer struct {
	polls    int
	yieldFor int64 // negative: never sleep

	idle    int
	since   int64 // start of the yields
	yielded int64 // when the last yield began; 0: judged
	let     int64 // when others were last let run: by a yield, or a sleep

	crowdedUntil int64
	crowdedFor   int64 // how long the core was last held to be crowded
}

func newPacer(w Wait) pacer {
	p := pacer{polls: w.Polls, yieldFor: int64(w.Yield)}
	if w.Yield == 0 {
		p.yieldFor = int64(yieldDefault)
	}
	return p
}

// turned is told after each turn how much work it did; now is the turn's
// start.
func (p *pacer) turned(now int64, work int) gear {
	p.judge(now)
	if work > 0 {
		p.idle = 0
		if now-p.let < busyYield || p.crowded(now) {
			return gearPoll
		}
		p.let, p.yielded = now, now
		return gearYield
	}
	p.idle++
	if p.idle <= p.polls {
		return gearPoll
	}
	if p.idle == p.polls+1 {
		p.since = now
	}
	if p.yieldFor >= 0 && (p.crowded(now) || now-p.since >= p.yieldFor) {
		p.let = now
		return gearSleep
	}
	p.let, p.yielded = now, now
	return gearYield
}

func (p *pacer) crowded(now int64) bool { return now < p.crowdedUntil }

// judge looks at what the last yield cost.
func (p *pacer) judge(now int64) {
	if p.yielded == 0 {
		return
	}
	cost := now - p.yielded
	p.yielded = 0
	if cost < crowdedAfter {
		p.crowdedFor = 0
		return
	}
	p.crowdedFor = min(max(2*p.crowdedFor, crowdedMin), crowdedMax)
	p.crowdedUntil = now + p.crowdedFor
}
