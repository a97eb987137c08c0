package sim

import (
	"fmt"
	"time"
)

// mayFail reports that the plan has a death in it, or what may be taken for one.
func (w *world) mayFail() bool {
	return w.victim >= 0 || w.doomed >= 0 || w.silence.mayKill() || w.frozen()
}

// doom ends the application whose time has come: it is killed, or it attacks
// its sidecar.
func (w *world) doom(a *app) error {
	if a.waits {
		return nil
	}
	if a.dead {
		a.linger() // an attack is taken from who reads
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

// killRank ends an application as the kernel does: its socket closes.
func (w *world) killRank(a *app) {
	a.dead = true
	if w.again != nil {
		w.again.kill(int(a.rank))
	}
	w.engines[w.podOf[a.rank]].SessionGone(a.session)
}

// deathNotice bounds how long it takes until every sidecar knows of a failure
// that one has noticed.
const deathNotice = int64(20 * time.Second)

// checkFailure: when one sidecar has noticed the death all know of it, and name
// the killed rank, or one of the killed pod. Nobody needs to notice the end of a
// pod who has nothing to do with it any more.
func (w *world) checkFailure() error {
	survivors := len(w.engines)
	if w.victim >= 0 {
		survivors--
	}
	for end := w.net.now + deathNotice; w.net.now < end; w.idle(1_000_000) {
		switch n, err := w.noticed(); {
		case err != nil:
			return err
		case n == survivors:
			return nil
		}
	}
	if n, _ := w.noticed(); n > 0 || w.doomed >= 0 {
		return fmt.Errorf("only %d of %d sidecars know of the death", n, survivors)
	}
	return nil
}

// checkRemains ends what is left of a failed job, as launchers do: afterwards no
// request, message, registration or memory of a rank is left at any sidecar that
// still runs.
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

// noticed counts the surviving sidecars that know of the death.
func (w *world) noticed() (n int, err error) {
	for i, e := range w.engines {
		f := e.Failure()
		if i == w.victim || f == nil {
			continue
		}
		n++
		if !w.guilty(f.Rank) {
			return n, fmt.Errorf("pod %d blames rank %d: %w", i, f.Rank, f)
		}
	}
	return n, nil
}

func (w *world) guilty(rank uint32) bool {
	if w.doomed >= 0 {
		return int(rank) == w.doomed
	}
	return int(rank) < len(w.podOf) && (int(w.podOf[rank]) == w.victim || int(w.podOf[rank]) == w.silence.pod || int(w.podOf[rank]) == w.freezes)
}
