package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// A machine may stop for good behind the last word of its sidecar: all ranks of the pod
// have left, the goodbye is on its way to all who are connected, and nothing moves there
// any more, its device neither. Who reads its memory then is not answered, and not
// refused: the read ends when the peer is given up.

// planFreeze draws whether the pod of a deserter freezes when it has said goodbye, from a
// source of its own. All its ranks leave then.
func (w *world) planFreeze() {
	rng := rand.New(rand.NewPCG(w.seed, 8))
	if w.freezes = -1; !w.desertion || rng.IntN(2) == 0 {
		return
	}
	for _, a := range w.apps {
		if a.deserts > 0 {
			w.freezes = int(w.podOf[a.rank])
			w.leaveWith(a, rng)
			return
		}
	}
}

// leaveWith lets the other ranks of a's pod leave about when a does.
func (w *world) leaveWith(a *app, rng *rand.Rand) {
	for _, b := range w.apps {
		if b != a && w.podOf[b.rank] == w.podOf[a.rank] {
			b.deserts = a.deserts * (0.8 + 0.2*rng.Float64())
		}
	}
}

// freeze stops the pod whose time has come: the goodbye is on every connection of it. What
// has been posted still comes.
func (w *world) freeze() {
	if w.freezes < 0 || w.frozen() {
		return
	}
	p, said := w.net.ports[w.freezes], false
	for i := range w.net.ports {
		l := w.net.lines[pair(p.self, link.Peer(i))]
		if l == nil || !l.up {
			continue
		}
		if p.byes[link.Peer(i)] != l.generation {
			return
		}
		said = true
	}
	p.frozen = said
}

// frozen reports that the pod has stopped.
func (w *world) frozen() bool { return w.freezes >= 0 && w.net.ports[w.freezes].frozen }

// checkFrozen: who has heard the goodbye loses nothing but what was the frozen pod's. Who
// had no connection, and wants one, may give the job up for it.
func (w *world) checkFrozen() error {
	failed, err := w.noticed()
	if err != nil {
		return err
	}
	for i, e := range w.engines {
		if s := e.Counters(); failed == 0 && i != w.freezes && open(s) != 0 {
			return fmt.Errorf("pod %d has left %d sends, %d receives, %d probes behind one that has stopped", i, s.Sends, s.Receives, s.Probes)
		}
	}
	return w.checkRemains()
}
