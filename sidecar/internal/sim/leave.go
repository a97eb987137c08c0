package sim

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Pods end as in a cluster: as soon as their own ranks have finished, with messages still in
// flight to others. Their sidecars send Goodbye, wait until nothing is left, and end. Other
// pods must not take that for a failure.

// afterwards is the time for which the engines run after the end of the job: longer than the
// time after which a peer that does not answer is given up.
const afterwards = 10 * time.Second

// leave ends the pods whose ranks have finished.
func (w *world) leave() error {
	for i, port := range w.net.ports {
		if port.dead || !w.podDone(i) {
			continue
		}
		if !w.leaving[i] {
			if w.rng.IntN(20) > 0 {
				continue // after a random delay
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

// podDone reports whether the ranks of a pod have finished.
func (w *world) podDone(pod int) bool {
	for _, a := range w.apps {
		if int(w.podOf[a.rank]) == pod && (!a.done() || a.silent != a.control.Retired()) {
			return false
		}
	}
	return true
}

// detach detaches the applications of a pod and has its engine leave the job. An engine
// treats an application that has never attached as one that has detached.
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
