package why

import (
	"fmt"
	"slices"
	"strings"
)

// needs are the ranks that a rank's oldest wait is for, if it is for certain ones.
func (r *Rank) needs() []int {
	if len(r.Waits) == 0 {
		return nil
	}
	w := &r.Waits[0]
	switch {
	case w.Moving:
		return nil
	case w.Kind == Collective:
		return w.For
	case w.Peer == Any:
		return nil
	}
	return []int{w.Peer}
}

// cycles tells of ranks that wait for each other. A program may still be right
// whose request beside the oldest one ends it: hence what each of them does.
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
			next := x.needs()
			if len(next) == 0 {
				break
			}
			r = next[0]
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
	if len(ring) == 2 {
		return fmt.Sprintf("%s wait for each other: %s", Names(ring), strings.Join(parts, ", "))
	}
	return fmt.Sprintf("%s wait for each other in a ring: %s", Names(ring), strings.Join(parts, ", "))
}

// deserted tells of ranks that wait for one which has left, or never came.
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

// disagreements tells of ranks that are in different collectives of one
// communicator at once.
func disagreements(ranks []Rank) (lines []string) {
	type place struct {
		context, number uint32
	}
	type side struct {
		name  string
		ranks []int
	}
	at := map[place][]side{}
	var order []place
	for _, r := range ranks {
		for _, w := range r.Waits {
			if w.Kind != Collective {
				continue
			}
			p := place{w.Context, w.Number}
			sides := at[p]
			i := slices.IndexFunc(sides, func(s side) bool { return s.name == w.Name })
			if i < 0 {
				if len(sides) == 0 {
					order = append(order, p)
				}
				sides = append(sides, side{name: w.Name})
				i = len(sides) - 1
			}
			sides[i].ranks = append(sides[i].ranks, r.Rank)
			at[p] = sides
		}
	}
	for _, p := range order {
		if len(at[p]) < 2 {
			continue
		}
		var parts []string
		for _, s := range at[p] {
			verb := "is"
			if len(s.ranks) > 1 {
				verb = "are"
			}
			parts = append(parts, fmt.Sprintf("%s %s in %s", Names(s.ranks), verb, s.name))
		}
		line := "ranks disagree about a collective: " + strings.Join(parts, ", ")
		if p.context != 0 {
			line += fmt.Sprintf(" (communicator %d)", p.context)
		}
		lines = append(lines, line)
	}
	return lines
}
