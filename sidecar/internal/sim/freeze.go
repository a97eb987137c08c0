package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A machine may stop for good after the last frame of its sidecar: all ranks of the pod have
// left, Goodbye is in flight to all connected peers, and the pod stops, with its device. A
// read of its memory is then neither answered nor refused, and ends when the reader gives the
// peer up.

// planFreeze draws, from a source of its own, whether a pod with a rank that leaves early
// freezes after its Goodbye. All its ranks leave then.
func (w *world) planFreeze() {
	rng := rand.New(rand.NewPCG(w.seed, 8))
	if w.freezes = -1; !w.hasLeavers || rng.IntN(2) == 0 {
		return
	}
	for _, a := range w.apps {
		if a.leavesAt > 0 {
			w.freezes = int(w.podOf[a.rank])
			w.leaveWith(a, rng)
			return
		}
	}
}

// leaveWith makes the other ranks of a's pod leave at about the same time as a.
func (w *world) leaveWith(a *app, rng *rand.Rand) {
	for _, b := range w.apps {
		if b != a && w.podOf[b.rank] == w.podOf[a.rank] {
			b.leavesAt = a.leavesAt * (0.8 + 0.2*rng.Float64())
		}
	}
}

// freeze stops the pod when it has sent Goodbye on each of its connections. Frames in flight
// still arrive.
func (w *world) freeze() {
	if w.freezes < 0 || w.frozen() {
		return
	}
	p, sent := w.net.ports[w.freezes], false
	for i := range w.net.ports {
		l := w.net.lines[pair(p.self, link.Peer(i))]
		if l == nil || !l.up {
			continue
		}
		if p.goodbyes[link.Peer(i)] != l.generation {
			return
		}
		sent = true
	}
	p.frozen = sent
}

// frozen reports whether the pod has stopped.
func (w *world) frozen() bool { return w.freezes >= 0 && w.net.ports[w.freezes].frozen }

// checkFrozen checks that peers that have received Goodbye lose only requests of the frozen
// pod. A peer without a connection that needs one may fail the job.
func (w *world) checkFrozen() error {
	failed, err := w.informed()
	if err != nil {
		return err
	}
	for i, e := range w.engines {
		if s := e.Counters(); failed == 0 && i != w.freezes && open(s) != 0 {
			return fmt.Errorf("pod %d has left %d sends, %d receives, %d probes after the stop of another pod", i, s.Sends, s.Receives, s.Probes)
		}
	}
	return w.checkRemains()
}
