package why

import (
	"fmt"
	"strings"
)

// Bounds of reports about ranks that are past a collective: the minimum time for which the
// other rank must have waited, so that no message is in flight any more, and the number of
// lines.
const (
	outrunAfter = 1.0 // minimum wait of the other rank, in seconds
	outrunMost  = 8
)

// outrun reports ranks that wait in a collective for a rank of their generation that is past
// it: that rank has begun a later collective of the communicator, and has no request left of
// this one.
func outrun(ranks []Rank) (lines []string) {
	at := map[int]*Rank{}
	for i := range ranks {
		at[ranks[i].Rank] = &ranks[i]
	}
	for i := range ranks {
		for j := range ranks[i].Waits {
			w := &ranks[i].Waits[j]
			ask := suspects(w)
			if ask == "" || w.Seconds < outrunAfter {
				continue
			}
			for _, peer := range w.For {
				if p := at[peer]; p == nil || p.Generation != ranks[i].Generation || !p.past(w) {
					continue
				}
				if len(lines) == outrunMost {
					return lines
				}
				lines = append(lines, fmt.Sprintf("rank %d waits in %s for rank %d, which is past it%s: do their %s disagree?", ranks[i].Rank, w.Name+w.communicator(), peer, at[peer].ahead(w), ask))
			}
		}
	}
	return lines
}

// past reports whether the rank has begun a later collective of w's communicator, and all its
// requests are known and none belongs to w's collective.
func (r *Rank) past(w *Wait) bool {
	later := false
	for i := range r.Past { // Past has the last collective first
		b := &r.Past[i]
		// The message of the last one may be in flight.
		later = later || b.Context == w.Context && b.Lead == w.Lead && int32(b.Number-w.Number) > 1
	}
	for i := range r.Waits {
		x := &r.Waits[i]
		if x.Kind != Collective || x.Context != w.Context {
			continue
		}
		ahead := int32(x.Number - w.Number) // the difference is correct if the numbers wrap around
		if ahead == 0 {
			return false
		}
		later = later || ahead > 0
	}
	return later && r.More == 0
}

// ahead returns by how many collectives the rank is ahead, as text, if there are many.
func (r *Rank) ahead(w *Wait) string {
	most := int32(0)
	for i := range r.Past {
		if b := &r.Past[i]; b.Context == w.Context && b.Lead == w.Lead {
			most = max(most, int32(b.Number-w.Number))
		}
	}
	if most < 2 {
		return ""
	}
	return fmt.Sprintf(" by %d collectives", most)
}

// suspects returns the arguments of a collective in which ranks may differ so that one of them
// ends the collective without sending the message for which another waits.
func suspects(w *Wait) string {
	if w.Kind != Collective {
		return ""
	}
	switch name, _, _ := strings.Cut(w.Name, " "); name {
	case "alltoallv", "scatterv":
		return "counts"
	case "gatherv":
		return "counts or roots"
	case "gather", "reduce":
		return "roots"
	}
	return "collectives"
}
