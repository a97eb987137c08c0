package why

import (
	"fmt"
	"time"
)

// Stuck reports that every rank that has not left has waited that long, for
// something that is not under way, and has begun and ended no call meanwhile: a
// suspected deadlock. It is no proof: a rank that computes for long while a
// receive that it has posted early is open looks the same.
func Stuck(ranks []Rank, least time.Duration) bool {
	waiting := false
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.State == Left:
		case !r.stuck(least):
			return false
		default:
			waiting = true
		}
	}
	return waiting
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

// Blocked reports that none of them may compute meanwhile, as far as their clients say:
// all that have waits are in calls that wait.
func Blocked(ranks []Rank) bool {
	for i := range ranks {
		if ranks[i].Free {
			return false
		}
	}
	return true
}

// Moves reports that a rank does something, so that its job is in no deadlock:
// who asks sidecar by sidecar needs to ask no more of them.
func Moves(ranks []Rank, least time.Duration) bool {
	for i := range ranks {
		if r := &ranks[i]; r.State != Left && !r.stuck(least) {
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
	if len(r.Waits) == 0 {
		return 0
	}
	return min(r.Quiet, r.Waits[0].Seconds)
}

// stuck reports whether a rank has only waited for that long, or is stopped.
func (r *Rank) stuck(least time.Duration) bool {
	if r.Stopped != 0 {
		return true // it does nothing, whatever it was at
	}
	if len(r.Waits) == 0 || r.Idle() < least.Seconds() {
		return false
	}
	for i := range r.Waits {
		if r.Waits[i].Moving {
			return false
		}
	}
	return !r.Own // else it may be talking to ranks of its pod
}

// Suspicion is the sentence that a suspected deadlock begins with.
func Suspicion(least time.Duration) string {
	return fmt.Sprintf("suspected deadlock: every rank has waited for %s or longer, and nothing is under way", Time(least.Seconds()))
}
