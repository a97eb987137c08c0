package engine

import (
	"slices"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// Repeats are accesses of a rank to memory of other ranks that have had the same results for some time.
type Repeats struct {
	Target uint32 // rank of the last one
	Since  int64  // time of the engine's clock
}

// addRepeats adds what is known of calls that a rank repeats.
func (e *Engine) addRepeats(w *Waits, at *attached, now shm.Moment) {
	acted := at.Acted()
	still := int64(acted.Age(now))
	w.Quiet = at.times.Quiet(e.now, acted != 0, still)
	w.Vain, w.MoreVain = at.times.VainProbes(e.now, vainFresh)
	if target, does := at.times.Accesses(e.now, vainFresh); does && acted != 0 && !acted.Fresh(now) {
		w.Repeats = &Repeats{target, max(e.now-still, 0)}
	}
	if e.accesses(now) {
		w.Others = w.Others && !w.Accesses.Own || !w.Moving && w.Accesses.Any && !w.Accesses.Own
		w.Moving = w.Moving || w.Accesses.Any
	}
}

// accesses reports whether accesses of the ranks here may have an effect: not all of them are known to do
// nothing but repeat calls.
func (e *Engine) accesses(now shm.Moment) bool {
	return slices.ContainsFunc(e.active, func(a *attached) bool { return a.Acted() == 0 || a.Acted().Fresh(now) })
}

// vainFresh is how long after its last probe in vain a rank counts as one that repeats it, in
// nanoseconds.
const vainFresh = int64(shm.MomentFresh) << shm.MomentShift
