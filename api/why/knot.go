package why

import (
	"fmt"
	"slices"
	"time"
)

// Knot returns the ranks that have waited for at least that long for each other alone: each of
// them is stuck, and each of its requests needs another of them. They are in a suspected deadlock,
// whatever the other ranks of the job do. A request that any rank can end is in no knot, unless
// all ranks are stuck (Stuck).
func Knot(ranks []Rank, least time.Duration) (knot []Rank) {
	ranks = onTheirWay(ranks)
	findLocks(ranks)
	in := map[int]uint64{} // generation of each rank that may be in the knot
	for i := range ranks {
		r := ranks[i]
		if r.Others { // each request of a knot needs a message of the knot
			r.Moves = false
		}
		if r.State == "" && r.Meeting == 0 && r.More == 0 && r.stuck(least) {
			in[r.Rank] = r.Generation
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range ranks {
			r := &ranks[i]
			if _, is := in[r.Rank]; is && !r.tied(in) {
				delete(in, r.Rank)
				changed = true
			}
		}
	}
	for i := range ranks {
		if _, is := in[ranks[i].Rank]; is {
			knot = append(knot, ranks[i])
		}
	}
	return knot
}

// Remain reports whether the ranks of a knot that was found so long ago have begun and ended no call
// since then, so that they still wait for each other.
func Remain(knot, ranks []Rank, since time.Duration) bool {
	for i := range knot {
		k := &knot[i]
		if !slices.ContainsFunc(ranks, func(r Rank) bool {
			return r.Rank == k.Rank && r.Generation == k.Generation && r.State == "" && r.Quiet >= since.Seconds()
		}) {
			return false
		}
	}
	return true
}

// tied reports whether each request of a rank needs a rank of the same generation in the set.
func (r *Rank) tied(in map[int]uint64) bool {
	if len(r.Waits) == 0 {
		return false // it polls for any message
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		if w.Kind == OneSided && w.lock == nil {
			return false // the target's sidecar may serve it
		}
		one := false
		for _, n := range w.needs() {
			generation, is := in[n]
			one = one || is && generation == r.Generation
		}
		if !one {
			return false
		}
	}
	return true
}

// KnotText returns the first sentence about a knot.
func KnotText(knot []Rank, least time.Duration) string {
	names := make([]int, len(knot))
	for i := range knot {
		names[i] = knot[i].Rank
	}
	if len(names) == 1 {
		return fmt.Sprintf("suspected deadlock: rank %d has waited for itself for %s or longer, and nothing is under way for it; other ranks go on", names[0], Time(least.Seconds()))
	}
	return fmt.Sprintf("suspected deadlock: %s have waited for each other for %s or longer, and nothing is under way for them; other ranks go on", Names(names), Time(least.Seconds()))
}
