package why

import (
	"fmt"
	"slices"
	"strings"
)

// needs returns the ranks for which a rank's oldest wait is, if it is for certain ranks.
func (r *Rank) needs() []int {
	if len(r.Waits) == 0 {
		return nil
	}
	return r.Waits[0].needs()
}

func (w *Wait) needs() []int {
	switch {
	case w.Moving, w.Repeats == Access: // any rank may change what the rank polls
		return nil
	case w.Kind == Collective:
		return w.For
	case w.lock != nil && len(w.lock.Holders) > 0:
		return w.lock.needs()
	case w.Peer == Any:
		return nil
	}
	return []int{w.Peer}
}

// next returns the first rank for which the oldest wait is; Any if there is none. A rank of a
// later generation does not count: it has left the waiting rank's generation, so that the wait
// ends with an error. A rank of an earlier generation may still arrive.
func (r *Rank) next(at map[int]*Rank) int {
	needs := r.needs()
	if len(needs) == 0 {
		return Any
	}
	if o := at[needs[0]]; o != nil && o.Generation > r.Generation {
		return Any
	}
	return needs[0]
}

// cycles reports ranks that wait for each other. The program may still be correct, if a
// request other than the oldest one ends the wait; so the lines say what each rank
// does.
func cycles(ranks []Rank) (lines []string) {
	at := map[int]*Rank{}
	for i := range ranks {
		at[ranks[i].Rank] = &ranks[i]
	}
	seen := map[int]int{} // rank -> number of the walk that saw it
	for i := range ranks {
		var path []int
		for r := ranks[i].Rank; ; {
			if walk, is := seen[r]; is {
				if walk == i+1 {
					lines = append(lines, cycleLine(at, path[slices.Index(path, r):]))
				}
				break
			}
			seen[r] = i + 1
			path = append(path, r)
			x := at[r]
			if x == nil {
				break
			}
			if r = x.next(at); r == Any {
				break
			}
		}
	}
	return lines
}

func cycleLine(at map[int]*Rank, ring []int) string {
	if len(ring) == 1 {
		return fmt.Sprintf("rank %d waits for itself: %s", ring[0], at[ring[0]].Waits[0].text())
	}
	const most = 6
	var parts []string
	for i, r := range ring {
		if i == most {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, fmt.Sprintf("%d in %s", r, at[r].Waits[0].text()))
	}
	text := strings.Join(parts, ", ")
	if differ(at, ring) {
		text += " (in different communicators)"
	} else {
		text += doubt(at, ring)
	}
	if len(ring) == 2 {
		return fmt.Sprintf("%s wait for each other: %s", Names(ring), text)
	}
	return fmt.Sprintf("%s wait for each other in a ring: %s", Names(ring), text)
}

// differ reports whether ranks of a ring wait in different communicators.
func differ(at map[int]*Rank, ring []int) bool {
	first := &at[ring[0]].Waits[0]
	for _, r := range ring {
		if w := &at[r].Waits[0]; w.Kind == OneSided || w.MPI == MPIUnknown {
			return false
		} else if w.Context != first.Context {
			return true
		}
	}
	return false
}

// doubt returns the possible mistake of ranks in a ring that all wait for messages of an MPI's
// collectives; empty if none is known. Different collectives may be parts of one collective,
// but such parts do not wait for each other; neither do ranks of a collective with a root.
func doubt(at map[int]*Rank, ring []int) string {
	first, same, rooted := at[ring[0]].Waits[0].Name, true, false
	for _, r := range ring {
		w := &at[r].Waits[0]
		if w.MPI != MPICollective || w.Name == "" {
			return ""
		}
		same, rooted = same && w.Name == first, rooted || slices.Contains(mpiRooted, w.Name)
	}
	switch {
	case !same && rooted: // a rank that is no root may be past it
		return " (in different collectives, or with different roots?)"
	case !same:
		return " (in different collectives?)"
	case rooted:
		return " (with different roots?)"
	}
	return ""
}

// stopped reports ranks whose processes do not run, and for which others may wait.
func stopped(ranks []Rank) (lines []string) {
	const most = 4
	for _, r := range ranks {
		if r.Stopped == 0 {
			continue
		}
		if len(lines) == most {
			return append(lines, "more ranks are stopped")
		}
		if r.Frozen {
			lines = append(lines, fmt.Sprintf("rank %d is stopped by the freezer of a control group of its process (/proc/%d/cgroup): `docker unpause`, 0 in the group's cgroup.freeze, or THAWED in its freezer.state, lets it go on", r.Rank, r.Stopped))
			continue
		}
		lines = append(lines, fmt.Sprintf("rank %d is stopped by a signal (SIGSTOP or a debugger): `kill -CONT %d` lets its process go on", r.Rank, r.Stopped))
	}
	return lines
}

// forsaken reports a rank that waits for a message of any rank after all others have left. It
// may still send one to itself.
func forsaken(ranks []Rank) []string {
	var last *Rank
	for i := range ranks {
		switch r := &ranks[i]; {
		case r.State == Left:
		case last != nil || r.State != "":
			return nil
		default:
			last = r
		}
	}
	if last == nil || len(ranks) < 2 || len(last.Waits) == 0 {
		return nil
	}
	if w := &last.Waits[0]; (w.Kind == Recv || w.Kind == Probe) && w.Peer == Any && !w.Moving {
		return []string{fmt.Sprintf("rank %d waits for a message from any rank, and all other ranks have left the job", last.Rank)}
	}
	return nil
}

// deserted reports ranks that wait for a rank that has left, or never arrived.
func deserted(ranks []Rank) (lines []string) {
	gone := map[int]string{}
	for _, r := range ranks {
		if r.State != "" {
			gone[r.Rank] = r.text()
		}
	}
	byGone := map[int][]int{}
	for i := range ranks {
		for _, n := range ranks[i].needs() {
			if gone[n] != "" {
				byGone[n] = append(byGone[n], ranks[i].Rank)
			}
		}
	}
	for _, r := range ranks {
		if waiting := byGone[r.Rank]; len(waiting) > 0 {
			verb := "wait"
			if len(waiting) == 1 {
				verb = "waits"
			}
			lines = append(lines, fmt.Sprintf("%s %s for rank %d, which %s", Names(waiting), verb, r.Rank, gone[r.Rank]))
		}
	}
	return lines
}
