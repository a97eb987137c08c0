package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// In some jobs engines without work sleep: until an application submits, a connection is
// made, the link has an event, or a timer expires. A write into a ring without a
// notification wakes no engine; its writer has to (core/channel/look.go). If the writer
// does not, heartbeats wake the engines, and the job continues: that defect is found by the
// time for which a frame lay in the ring.

// sleepState is the state of the sleeps of a job's engines.
type sleepState struct {
	rng        *rand.Rand // nil: engines do not sleep
	pods       []podSleep
	lookAfter  uint64
	slept      int
	unnotified int
	pauses     bool  // applications post nothing
	until      int64 // end of the current pause, or of the current activity
}

type podSleep struct {
	asleep bool
	until  int64
}

// RunResting runs the job of a seed like Run, with engines that sleep, and applications that
// send many small messages, with pauses. Most of its links have remote writes and
// notifications.
func RunResting(seed uint64) (covered Coverage, err error) { return newResting(seed).job() }

func newResting(seed uint64) *world {
	w := newWorld(seed)
	rng, c := rand.New(rand.NewPCG(seed, 12)), &w.net.caps
	if rng.IntN(4) > 0 {
		c.Register, c.Write, c.InOrder, c.Notify = true, true, true, true
	}
	w.slow, w.silence.pod = -1, -1 // a slow pod would be late to wake others
	w.sleep = sleepState{rng: rng, pods: make([]podSleep, len(w.net.ports)), lookAfter: 1 + rng.Uint64N(3)}
	return w
}

const (
	smallMessages = 400 // small messages of a job, in addition to the others
	talkMost      = int64(300 * time.Microsecond)
	pauseMost     = int64(20 * time.Millisecond)
)

// paused reports whether applications post nothing now.
func (r *sleepState) paused(now int64) bool {
	if r.rng == nil {
		return false
	}
	if now >= r.until {
		r.pauses = !r.pauses
		r.until = now + r.rng.Int64N(talkMost)
		if r.pauses {
			r.until = now + r.rng.Int64N(pauseMost)
		}
	}
	return r.pauses
}

// unnotifiedMost bounds the time for which a frame may lie in a ring while the engine
// sleeps. It is longer than the time in which the writer learns of the sleep and of the end
// of its last write.
const unnotifiedMost = int64(1500 * time.Microsecond)

// written records the time of a frame that was written into a ring here without a
// notification.
func (p *port) written(where link.Ref, notify uint64) {
	frame := where.Region == core.RegionRings && where.Len >= wire.SlotHeadMin+wire.TailBytes // else it is a word of the basic channel
	if p.unnotifiedAt == 0 && frame && (notify == 0 || !p.net.caps.Notify) {
		p.unnotifiedAt = p.net.now
	}
}

// settled records the end of a write to here. A writer that has to wake this engine first
// waits for all its writes to the ring, which some links do one after another.
func (p *port) settled() {
	if p.unnotifiedAt > 0 {
		p.unnotifiedAt = p.net.now
	}
}

// wakesEngine reports whether the link would wake its engine.
func (p *port) wakesEngine() bool {
	if len(p.events) > 0 {
		return true
	}
	for i := range p.net.ports {
		peer := link.Peer(i)
		if peer == p.self {
			continue
		}
		if p.down[peer] || len(p.landed[peer]) > 0 {
			return true
		}
		l := p.usable(peer)
		if l == nil {
			continue
		}
		if p.full[peer] && len(l.flows[endIndex(peer, p.self)]) < backlog {
			return true
		}
		for _, x := range l.flows[endIndex(p.self, peer)] {
			if x.at > p.net.now {
				break
			}
			if x.cast == nil || x.cast.notify != 0 && p.net.caps.Notify {
				return true
			}
		}
	}
	return false
}

// sleeps reports whether a pod's engine sleeps now, and wakes it if there is a cause.
func (w *world) sleeps(pod int) bool {
	if w.sleep.rng == nil {
		return false
	}
	r, p, e := &w.sleep.pods[pod], w.net.ports[pod], w.engines[pod]
	if !r.asleep {
		return false
	}
	rung := p.wakesEngine()
	if !rung && !e.HasInput() && w.net.now < r.until {
		return true
	}
	r.asleep = false
	e.CancelSleep()
	if p.unnotifiedAt > 0 {
		w.sleep.unnotified++
	}
	if p.unnotifiedAt > 0 && !rung && w.net.now-p.unnotifiedAt > unnotifiedMost {
		before := e.Counters().RingTaken
		if e.Turn(); e.Counters().RingTaken != before {
			w.net.fault = fmt.Sprintf("pod %d slept for %v with a frame in its ring", pod, time.Duration(w.net.now-p.unnotifiedAt))
		}
	}
	return false
}

// turn runs a turn of a pod's engine, which may sleep after it.
func (w *world) turn(pod int) int {
	e := w.engines[pod]
	p := w.net.ports[pod]
	clear(p.full)
	n := e.Turn()
	if w.sleep.rng == nil || n > 0 || w.sleep.rng.IntN(8) > 0 {
		return n
	}
	d, may := e.PrepareSleep()
	if !may {
		e.CancelSleep()
		return n
	}
	w.sleep.slept++
	p.unnotifiedAt = 0
	w.sleep.pods[pod] = podSleep{asleep: true, until: w.net.now + max(int64(d), 1)}
	return n
}
