package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Engines that find nothing to do sleep in some jobs: until an application or a connection
// calls, the link has something to tell, or its time has come. What is written into a ring
// without a notice wakes nobody: who wrote it has to (core/channel/look.go). Heartbeats wake
// everybody now and then, so that a job in which nobody does goes on all the same: it is
// found by how long what was written has lain there.

// rests are the sleeps of a job's engines.
type rests struct {
	rng       *rand.Rand // nil: nobody sleeps
	pods      []rest
	lookAfter uint64
	slept     int
	quiet     int
	pauses    bool  // applications post nothing now,
	until     int64 // or do so, until then
}

type rest struct {
	asleep bool
	until  int64
}

// RunResting is Run with engines that sleep, and applications that say much in a few words,
// with pauses: mostly over links by which looks tell of writes, and notices too.
func RunResting(seed uint64) (covered Coverage, err error) { return newResting(seed).job() }

func newResting(seed uint64) *world {
	w := newWorld(seed)
	rng, c := rand.New(rand.NewPCG(seed, 12)), &w.net.caps
	if rng.IntN(4) > 0 {
		c.Register, c.Write, c.InOrder, c.Notify = true, true, true, true
	}
	w.slow, w.silence.pod = -1, -1 // who is late is late with its answer, too
	w.rests = rests{rng: rng, pods: make([]rest, len(w.net.ports)), lookAfter: 1 + rng.Uint64N(3)}
	return w
}

const (
	chats     = 400 // small messages of a job, beside the others
	talkMost  = int64(300 * time.Microsecond)
	pauseMost = int64(20 * time.Millisecond)
)

// paused reports that applications post nothing now.
func (r *rests) paused(now int64) bool {
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

// restMost bounds how long a frame may lie beside an engine that sleeps: longer than who
// wrote it takes to hear of the sleep, and of the end of its last write.
const restMost = int64(1500 * time.Microsecond)

// written notes that a frame was written into a ring here, if nothing tells of it.
func (p *port) written(where link.Ref, notify uint64) {
	frame := where.Region == core.RegionRings && where.Len >= wire.SlotHeadMin+wire.TailBytes // else a word of basic's
	if p.quiet == 0 && frame && (notify == 0 || !p.net.caps.Notify) {
		p.quiet = p.net.now
	}
}

// settled notes that a write to here has ended. Who has to tell of what it wrote waits for
// all of its writes, of which a ring's are many, one after another on some links.
func (p *port) settled() {
	if p.quiet > 0 {
		p.quiet = p.net.now
	}
}

// rings reports that the link would wake its engine.
func (p *port) rings() bool {
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
		if p.full[peer] && len(l.flows[end(peer, p.self)]) < backlog {
			return true
		}
		for _, x := range l.flows[end(p.self, peer)] {
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

// sleeps reports that a pod's engine sleeps now.
func (w *world) sleeps(pod int) bool {
	if w.rests.rng == nil {
		return false
	}
	r, p, e := &w.rests.pods[pod], w.net.ports[pod], w.engines[pod]
	if !r.asleep {
		return false
	}
	rung := p.rings()
	if !rung && !e.HasInput() && w.net.now < r.until {
		return true
	}
	r.asleep = false
	e.CancelSleep()
	if p.quiet > 0 {
		w.rests.quiet++
	}
	if p.quiet > 0 && !rung && w.net.now-p.quiet > restMost {
		before := e.Counters().RingTaken
		if e.Turn(); e.Counters().RingTaken != before {
			w.net.fault = fmt.Sprintf("pod %d slept for %v beside a frame", pod, time.Duration(w.net.now-p.quiet))
		}
	}
	return false
}

// turn is a turn of a pod's engine, which may sleep behind it.
func (w *world) turn(pod int) int {
	e := w.engines[pod]
	p := w.net.ports[pod]
	clear(p.full)
	n := e.Turn()
	if w.rests.rng == nil || n > 0 || w.rests.rng.IntN(8) > 0 {
		return n
	}
	d, may := e.PrepareSleep()
	if !may {
		e.CancelSleep()
		return n
	}
	w.rests.slept++
	p.quiet = 0
	w.rests.pods[pod] = rest{asleep: true, until: w.net.now + max(int64(d), 1)}
	return n
}
