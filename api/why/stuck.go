package why

import (
	"fmt"
	"slices"
	"time"
)

// Stuck reports that every rank that has not left has been in a call that waits for so
// long, for something that is not under way, and has begun and ended no call meanwhile: a
// suspected deadlock. It is no proof: another thread of a rank may compute. A rank that is
// stopped may go on, and so may one that is in no call that waits for good, or has not taken
// what has come for it.
func Stuck(ranks []Rank, least time.Duration) bool {
	ranks = onTheirWay(ranks)
	waiting := false
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.State == Left:
		case !r.stuck(least):
			return false
		case r.Meeting == 0: // where all meet none waits for a call of another
			waiting = true
		}
	}
	return waiting
}

// Seen returns the ranks as if no MPI carried messages within a pod by itself; hidden: one does. If they
// are stuck so, the job may be, or be at work where that is not seen.
func Seen(ranks []Rank) (seen []Rank, hidden bool) {
	for i := range ranks {
		if !ranks[i].Local {
			continue
		}
		if !hidden { // the caller's own are not changed
			ranks, hidden = slices.Clone(ranks), true
		}
		ranks[i].Local = false
	}
	return ranks, hidden
}

// Unseen returns the sentence about ranks that are stuck as far as is seen.
func Unseen(least time.Duration) string {
	return fmt.Sprintf("no rank has begun or ended a call for %s or longer, as far as is seen: the MPI carries messages within a pod by shared memory of its own, and a deadlock cannot be told from work there; with MPIR_CVAR_NOLOCAL=1 it can", Time(least.Seconds()))
}

// onTheirWay returns the ranks, with those that have left for good alone as Left: where some
// ranks are in a later generation, one that has left an earlier one, and may attach again,
// has not come yet. A sidecar knows that by itself only once another one has said so.
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
		if !copied { // the caller's own are not changed
			ranks, copied = slices.Clone(ranks), true
		}
		ranks[i].State = NotStarted
	}
	return ranks
}

// Halted returns the ranks that are stopped by a signal or frozen, if all others that have not left have
// only waited for so long: the job goes on when these do.
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

// Alone reports that every rank that is not stopped has left: none waits for
// those that are.
func Alone(ranks []Rank) bool {
	return !slices.ContainsFunc(onTheirWay(ranks), func(r Rank) bool { return r.Stopped == 0 && r.State != Left })
}

// Holds reports that a rank has been in a call that waits for so long: the others may be
// at work, or wait for something that Outrigger does not know of.
func Holds(ranks []Rank, least time.Duration) bool {
	for i := range ranks {
		r := &ranks[i]
		if r.State != Left && !r.Free && len(r.Waits) > 0 && min(r.Quiet, r.Waits[0].Seconds) >= least.Seconds() { // the oldest
			return true
		}
	}
	return false
}

// Moves reports that a rank does something, so that its job is in no deadlock:
// who asks sidecar by sidecar needs to ask no more of them. A rank that is stopped does
// nothing.
func Moves(ranks []Rank, least time.Duration) bool {
	for i := range ranks {
		if r := &ranks[i]; r.State != Left && r.Stopped == 0 && !r.stuck(least) {
			return true
		}
	}
	return false
}

// InCollective reports that a rank waits in a collective for that long: its ranks may
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

// Idle is for how many seconds the rank has done nothing but wait; 0: it does not.
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

// stuck reports whether a rank has been in a call that waits for that long, and does
// nothing but wait.
func (r *Rank) stuck(least time.Duration) bool {
	if r.Meeting > 0 { // it waits for all others, whatever of its MPI's own is open
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
	return !r.Local // else it may be talking to ranks of its pod
}

// Suspicion returns the sentence that a suspected deadlock begins with.
func Suspicion(least time.Duration) string {
	return fmt.Sprintf("suspected deadlock: every rank has waited for %s or longer, and nothing is under way", Time(least.Seconds()))
}
