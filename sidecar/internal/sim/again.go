package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Jobs whose ranks attach again: each rank runs several programs in turn. Each program has a
// plan of its own, which uses the same tags, communicators and windows as the one before.
// Ranks proceed at different speeds, so that one rank is far into a program while another has
// not left the previous one. A message that reaches another program than its own is found by
// its bytes, which depend on the program.

// again holds the programs of a job.
type again struct {
	rng      *rand.Rand
	programs []*world // worlds that differ only in their apps and plans
	at       []int    // index of each rank's program
	last     []int    // index of each rank's last program, with which the rank's process ends
	idle     []int64  // earliest time of each rank's next attachment
	killed   bool     // the doomed rank is killed
	early    int      // attachments that waited for the end of other ranks' sessions
	absent   int      // ranks whose processes ended before those of other ranks
}

// RunAgain runs the job of a seed whose ranks attach two to four times.
func RunAgain(seed uint64) (covered Coverage, err error) { return newAgain(seed).job() }

func newAgain(seed uint64) *world {
	w := newWorld(seed)
	rng := rand.New(rand.NewPCG(seed, 13))
	w.hostile, w.victim = false, -1                        // a pod that dies between two programs has left in good order
	w.silence.length = min(w.silence.length, silenceShort) // too short to fail a job
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
		if w.hasLeavers && rng.IntN(4) == 0 {
			n.last[rank] = rng.IntN(last)
		}
	}
	w.again = n
	return w
}

// planAgain plans the programs. The applications of the first one are attached.
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
				a.dead, a.leavesAt = true, 1 // as if it left early, before its first operation
			}
		}
		w.apps = append(w.apps, p.apps...)
		w.leaving = p.leaving // of the last program: whether pods end before the job does
	}
	return nil
}

// doomedApp returns the current application of the doomed rank.
func (w *world) doomedApp() *app {
	if w.again == nil {
		return w.apps[w.doomed]
	}
	return w.again.programs[w.again.at[w.doomed]].apps[w.doomed]
}

// wasKilled reports whether the doomed rank was killed.
func (w *world) wasKilled() bool {
	if w.again == nil {
		return w.apps[w.doomed].dead
	}
	return w.again.killed
}

// kill records that the process of a rank was killed: its next programs never attach.
func (n *again) kill(rank int) {
	n.killed = true
	for _, p := range n.programs[n.at[rank]+1:] {
		p.apps[rank].never()
	}
}

// never makes a an application that will not attach.
func (a *app) never() { a.waits, a.dead, a.exposures = false, true, nil }

// proceed ends the program of each rank that has finished it, and begins the next one.
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

// processesEnded reports whether each rank that will not attach again is reported as absent
// to its sidecar.
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
		return nil // the last program ends as in other jobs
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

const (
	// earlyLeast is the time after which an attachment counts as one that waited for the end
	// of other ranks' sessions.
	earlyLeast = int64(time.Millisecond)
	// idleMost is the longest pause of a rank between two programs.
	idleMost = int64(100 * time.Millisecond)
)
