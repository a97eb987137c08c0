package sim

import (
	"fmt"
	"time"
)

// mayFail reports whether the job may fail: a process ends, or a stop may be taken for its
// end.
func (w *world) mayFail() bool {
	return w.victim >= 0 || w.doomed >= 0 || w.silence.mayKill() || w.frozen()
}

// endDoomed kills the doomed application when its time has come, or has it attack its sidecar.
func (w *world) endDoomed(a *app) error {
	if a.waits {
		return nil
	}
	if a.dead {
		a.drainCompletions() // the engine reads an attack only if there is room for completions
		return nil
	}
	if w.progress() < w.killAt {
		return nil
	}
	if !w.hostile {
		w.killRank(a)
		return nil
	}
	over, err := a.attack()
	a.dead = over
	return err
}

// killRank ends an application as the kernel does: it closes the socket.
func (w *world) killRank(a *app) {
	a.dead = true
	if w.again != nil {
		w.again.kill(int(a.rank))
	}
	w.engines[w.podOf[a.rank]].SessionGone(a.session)
}

// deathNotice bounds the time until every sidecar knows of a failure that one has noticed.
const deathNotice = int64(20 * time.Second)

// checkFailure checks that, if one sidecar has noticed the failure, all know of it and name
// the killed rank, or one of the killed pod. A sidecar that does not communicate with a pod
// any more need not notice its end.
func (w *world) checkFailure() error {
	survivors := len(w.engines)
	if w.victim >= 0 {
		survivors--
	}
	for end := w.net.now + deathNotice; w.net.now < end; w.idle(1_000_000) {
		switch n, err := w.informed(); {
		case err != nil:
			return err
		case n == survivors:
			return nil
		}
	}
	if n, _ := w.informed(); n > 0 || w.doomed >= 0 {
		return fmt.Errorf("only %d of %d sidecars know of the failure", n, survivors)
	}
	return nil
}

// checkRemains ends the remaining ranks of a failed job, as launchers do, and checks that no
// request, message, registration or memory of a rank is left at a sidecar that still runs.
func (w *world) checkRemains() error {
	for _, a := range w.apps {
		if !a.dead && !w.net.ports[w.podOf[a.rank]].dead {
			w.killRank(a)
		}
	}
	for end := w.net.now + deathNotice; w.net.now < end; {
		w.idle(5_000_000)
	}
	for i, e := range w.engines {
		if w.net.ports[i].dead || w.silent(i) {
			continue
		}
		s := e.Counters()
		if open(s) != 0 || s.Parked != 0 || s.UnexpectedBytes != 0 {
			return fmt.Errorf("the failed job has left pod %d %d sends, %d receives, %d collectives, %d probes, %d accesses, %d messages, %d bytes",
				i, s.Sends, s.Receives, s.Collectives, s.Probes, s.Accesses, s.Parked, s.UnexpectedBytes)
		}
		if l := e.Remains(); l.Sessions != 0 {
			return fmt.Errorf("the failed job has left pod %d the memory of %d ranks", i, l.Sessions)
		}
		if err := w.checkCaches(i, s.Rings, 0); err != nil {
			return fmt.Errorf("after a failed job: %w", err)
		}
	}
	return nil
}

// informed returns the number of surviving sidecars that know of the failure.
func (w *world) informed() (n int, err error) {
	for i, e := range w.engines {
		f := e.Failure()
		if i == w.victim || f == nil {
			continue
		}
		n++
		if !w.mayBlame(f.Rank) {
			return n, fmt.Errorf("pod %d blames rank %d: %w", i, f.Rank, f)
		}
	}
	return n, nil
}

func (w *world) mayBlame(rank uint32) bool {
	if w.doomed >= 0 {
		return int(rank) == w.doomed
	}
	return int(rank) < len(w.podOf) && (int(w.podOf[rank]) == w.victim || int(w.podOf[rank]) == w.silence.pod || int(w.podOf[rank]) == w.freezes)
}
