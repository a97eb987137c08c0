package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Jobs whose ranks attach again: each rank runs one program after the other, and each program
// is a plan of its own, with the tags, communicators and windows of the one before. Ranks are
// on their way at different times, so that one is far into a program when another has not left
// the one before it. A message that comes to another program than its own has other bytes
// than its receive wants.

// again are the programs of a job.
type again struct {
	rng      *rand.Rand
	programs []*world // each with its apps, which share all else
	at       []int    // by rank: its program
	last     []int    // by rank: its last one; the process of the rank ends then
	idle     []int64  // by rank: when it attaches next, at the earliest
	killed   bool     // the doomed rank
	early    int      // attachments that waited for the end of others
	absent   int      // ranks whose processes ended before those of others
}

// RunAgain runs the job of a seed whose ranks attach two to four times.
func RunAgain(seed uint64) (covered Coverage, err error) { return newAgain(seed).job() }

func newAgain(seed uint64) *world {
	w := newWorld(seed)
	rng := rand.New(rand.NewPCG(seed, 13))
	w.hostile, w.victim = false, -1                        // a pod that dies between two programs has left in good order
	w.silence.length = min(w.silence.length, silenceShort) // no job fails for that
	n := &again{rng: rng, last: make([]int, len(w.podOf)), at: make([]int, len(w.podOf)), idle: make([]int64, len(w.podOf))}
	if rng.IntN(4) == 0 {
		w.caching, w.net.parts = true, false
	}
	last := 1 + rng.IntN(3)
	for i := 0; i <= last; i++ {
		p := *w
		p.salt, p.again = i+1, n
		if i < last {
			p.leaving = nil
		}
		n.programs = append(n.programs, &p)
	}
	for rank := range n.last {
		n.last[rank] = last
		if w.desertion && rng.IntN(4) == 0 {
			n.last[rank] = rng.IntN(last)
		}
	}
	w.again = n
	return w
}

// planAgain plans the programs. The first ones are attached.
func (w *world) planAgain() error {
	n, first := w.again, w.apps
	w.apps = nil
	for i, p := range n.programs {
		p.engines, p.apps = w.engines, first
		if i > 0 {
			p.apps = nil
			for rank := range w.podOf {
				a, err := newApp(p, uint32(rank))
				if err != nil {
					return err
				}
				if a.waits = i <= n.last[rank]; a.waits {
					a.mayExpose(w.net.ports[w.podOf[rank]])
				}
				p.apps = append(p.apps, a)
			}
		}
		for _, a := range p.apps {
			a.w = p
		}
		p.plan()
		for rank, a := range p.apps {
			if i > n.last[rank] {
				a.dead, a.deserts = true, 1 // as one that leaves before it has done anything
			}
		}
		w.apps = append(w.apps, p.apps...)
		w.leaving = p.leaving // of the last one: whether pods end by themselves
	}
	return nil
}

// doomedApp is the application that is to be killed.
func (w *world) doomedApp() *app {
	if w.again == nil {
		return w.apps[w.doomed]
	}
	return w.again.programs[w.again.at[w.doomed]].apps[w.doomed]
}

// wasKilled reports whether it has been.
func (w *world) wasKilled() bool {
	if w.again == nil {
		return w.apps[w.doomed].dead
	}
	return w.again.killed
}

// kill notes that the process of a rank was killed: its next programs never attach.
func (n *again) kill(rank int) {
	n.killed = true
	for _, p := range n.programs[n.at[rank]+1:] {
		p.apps[rank].never()
	}
}

// never makes a an application that does not attach.
func (a *app) never() { a.waits, a.dead, a.exposes = false, true, nil }

// proceed ends the program of each rank that is done with it, and begins the next one.
func (w *world) proceed() error {
	for rank := range w.again.at {
		if !w.net.ports[w.podOf[rank]].dead && !(rank == w.doomed && w.again.killed) {
			if err := w.proceedRank(rank); err != nil {
				return err
			}
		}
	}
	return nil
}

// processesEnded reports that the sidecars know of each rank that attaches no more.
func (w *world) processesEnded() bool {
	for rank, at := range w.again.at {
		if at == w.again.last[rank] && at+1 < len(w.again.programs) && !w.net.ports[w.podOf[rank]].dead && !(rank == w.doomed && w.again.killed) {
			return false
		}
	}
	return true
}

func (w *world) proceedRank(rank int) error {
	n, e := w.again, w.engines[w.podOf[rank]]
	at, end := n.at[rank], len(n.programs)-1
	if at > n.last[rank] { // its process has ended
		return nil
	}
	a := n.programs[at].apps[rank]
	if at == end && (w.leaving != nil || !a.dead) {
		return nil // the end of the job is as ever
	}
	if a.waits || !a.dead && (!a.done() || !a.failed && a.silent != a.control.Retired() || n.rng.IntN(20) > 0) {
		return nil
	}
	if !a.dead {
		if ok, err := a.submit.Push(&shm.Descriptor{Op: shm.OpDetach}); !ok || err != nil {
			return err
		}
		a.dead = true
		n.idle[rank] = 0
		if n.rng.IntN(3) == 0 {
			n.idle[rank] = w.net.now + n.rng.Int64N(idleMost)
		}
	}
	if at == end || w.net.now < n.idle[rank] {
		return nil
	}
	n.at[rank]++
	e.SessionGone(a.session)
	if at == n.last[rank] {
		n.absent++
		e.Absent(uint32(rank))
		return nil
	}
	next, asked := n.programs[at+1].apps[rank], w.net.now
	return e.AttachLater(next.session, func(err error) {
		if next.waits = false; err != nil {
			next.never()
			if e.Failure() == nil {
				w.net.fault = fmt.Sprintf("rank %d cannot attach again: %v", rank, err)
			}
		}
		if w.net.now-asked > earlyLeast {
			n.early++
		}
	})
}

// earlyLeast is from where on an attachment has waited for the end of others; idleMost is the
// longest pause of a rank between two programs.
const (
	earlyLeast = int64(time.Millisecond)
	idleMost   = int64(100 * time.Millisecond)
)
