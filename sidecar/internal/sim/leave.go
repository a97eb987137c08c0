package sim

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Pods end as they do in a cluster: as soon as their own ranks are done, however
// much is on its way to others. Their sidecars say goodbye, wait until nothing
// is left, and are gone; nobody else may notice.

// afterwards is how long the others are watched when the job is done: longer
// than a peer that does not answer is waited for.
const afterwards = 10 * time.Second

// leave lets pods go that are done.
func (w *world) leave() error {
	for i, port := range w.net.ports {
		if port.dead || !w.podDone(i) {
			continue
		}
		if !w.leaving[i] {
			if w.rng.IntN(20) > 0 {
				continue // it takes its time
			}
			if err := w.detach(i); err != nil {
				return err
			}
			w.leaving[i] = true
		}
		if l := w.engines[i].Remains(); !l.None() {
			continue
		}
		port.dead = true
		for k := range w.net.ports {
			w.net.breakLine(linkPeer(i), linkPeer(k))
		}
	}
	return nil
}

// podDone reports that the ranks of a pod have nothing to do any more.
func (w *world) podDone(pod int) bool {
	for _, a := range w.apps {
		if int(w.podOf[a.rank]) == pod && (!a.done() || a.silent != a.control.Retired()) {
			return false
		}
	}
	return true
}

// detach ends the applications of a pod. The last one may have ended without
// ever having attached, which to its sidecar is the same.
func (w *world) detach(pod int) error {
	for _, a := range w.apps {
		if int(w.podOf[a.rank]) != pod || a.dead {
			continue
		}
		if _, err := a.submit.Push(&shm.Descriptor{Op: shm.OpDetach}); err != nil {
			return err
		}
	}
	w.engines[pod].Leave()
	return nil
}

// left reports whether every pod has ended.
func (w *world) left() bool {
	for _, p := range w.net.ports {
		if !p.dead {
			return false
		}
	}
	return true
}
