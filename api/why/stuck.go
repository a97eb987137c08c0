package why

import (
	"fmt"
	"slices"
	"time"
)

// Stuck reports whether, for at least that long, every rank that has not left has been in a
// call that waits for something that is not in flight, and has begun and ended no call: a
// suspected deadlock. It is no proof, because another thread of a rank may compute. A stopped
// rank may continue, and so may a rank that is in no call without a time limit, or that has
// not read the completions that have arrived.
func Stuck(ranks []Rank, least time.Duration) bool {
	ranks = onTheirWay(ranks)
	waiting := false
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.State == Left:
		case !r.stuck(least):
			return false
		case r.Meeting == 0: // if all ranks meet, none of them waits for a call of another one
			waiting = true
		}
	}
	return waiting
}

// Seen returns the ranks as if no MPI transferred messages within a pod by itself. hidden
// reports whether one does. If the returned ranks are stuck, the job may be stuck, or may make
// progress that is not visible.
func Seen(ranks []Rank) (seen []Rank, hidden bool) {
	for i := range ranks {
		if !ranks[i].Local {
			continue
		}
		if !hidden { // the caller's ranks are not changed
			ranks, hidden = slices.Clone(ranks), true
		}
		ranks[i].Local = false
	}
	return ranks, hidden
}

// Unseen returns the sentence about ranks that are stuck as far as is visible.
func Unseen(least time.Duration) string {
	return fmt.Sprintf("no rank has begun or ended a call for %s or longer, as far as is seen: the MPI carries messages within a pod by shared memory of its own, and a deadlock cannot be told from work there; with MPIR_CVAR_NOLOCAL=1 it can", Time(least.Seconds()))
}

// onTheirWay returns the ranks, of which only those that have left for good are in the state
// Left. If some ranks are in a later generation, a rank that has left an earlier one and may
// attach again has not arrived yet. A sidecar learns of a later generation only from another
// sidecar.
func onTheirWay(ranks []Rank) []Rank {
	last := uint64(0)
	for i := range ranks {
		last = max(last, ranks[i].Generation)
	}
	copied := false
	for i := range ranks {
		if r := &ranks[i]; r.State != Left || !r.Returns || r.Generation == last {
			continue
		}
		if !copied { // the caller's ranks are not changed
			ranks, copied = slices.Clone(ranks), true
		}
		ranks[i].State = NotStarted
	}
	return ranks
}

// Halted returns the ranks that are stopped by a signal or frozen, if all others that have not
// left have only waited for that long: the job continues when these ranks do.
func Halted(ranks []Rank, least time.Duration) (halted []Rank) {
	ranks = onTheirWay(ranks)
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.Stopped != 0:
			halted = append(halted, *r)
		case r.State != Left && !r.stuck(least):
			return nil
		}
	}
	return halted
}

// Alone reports whether every rank that is not stopped has left, so that none waits for the
// stopped ones.
func Alone(ranks []Rank) bool {
	return !slices.ContainsFunc(onTheirWay(ranks), func(r Rank) bool { return r.Stopped == 0 && r.State != Left })
}

// Holds reports whether a rank has been in a call that waits for that long. The others may
// compute, or wait for something that Outrigger does not know.
func Holds(ranks []Rank, least time.Duration) bool {
	for i := range ranks {
		r := &ranks[i]
		if r.State != Left && !r.Free && len(r.Waits) > 0 && min(r.Quiet, r.Waits[0].Seconds) >= least.Seconds() { // the first element of Waits is the oldest wait
			return true
		}
	}
	return false
}

// Moves reports whether a rank does something else than wait, so that its job is not in a
// deadlock. A caller that asks one sidecar after the other then need not ask the remaining
// ones. A stopped rank does nothing.
func Moves(ranks []Rank, least time.Duration) bool {
	for i := range ranks {
		if r := &ranks[i]; r.State != Left && r.Stopped == 0 && !r.stuck(least) {
			return true
		}
	}
	return false
}

// InCollective reports whether a rank has waited in a collective for that long: the ranks may
// disagree about it (Disagreements).
func InCollective(ranks []Rank, least time.Duration) bool {
	for i := range ranks {
		for j := range ranks[i].Waits {
			if w := &ranks[i].Waits[j]; w.Kind == Collective && w.Seconds >= least.Seconds() {
				return true
			}
		}
	}
	return false
}

// Idle returns for how many seconds the rank has only waited; 0: it does not only wait.
func (r *Rank) Idle() float64 {
	switch {
	case r.Meeting > 0:
		return r.Meeting
	case r.inMPI():
		return r.Quiet
	case len(r.Waits) == 0:
		return 0
	}
	return min(r.Quiet, r.Waits[0].Seconds)
}

// stuck reports whether a rank has been in a call that waits for that long, and does nothing
// else.
func (r *Rank) stuck(least time.Duration) bool {
	if r.Meeting > 0 { // a rank in such a call waits for all others, whatever requests of its MPI are open
		return r.Stopped == 0 && r.Meeting >= least.Seconds()
	}
	if r.Stopped != 0 || r.Free || r.Unread || r.Moves {
		return false
	}
	if len(r.Waits) == 0 && !r.inMPI() || r.Idle() < least.Seconds() {
		return false
	}
	for i := range r.Waits {
		if r.Waits[i].Moving {
			return false
		}
	}
	return !r.Local // a rank with Local may exchange messages with ranks of its pod
}

// Suspicion returns the first sentence about a suspected deadlock.
func Suspicion(least time.Duration) string {
	return fmt.Sprintf("suspected deadlock: every rank has waited for %s or longer, and nothing is under way", Time(least.Seconds()))
}
