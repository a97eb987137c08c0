package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Begun has consecutive collectives of one kind that a rank has begun, whether they have ended
// or not.
type Begun struct {
	Context uint32 `json:"context,omitempty"` // number of the communicator
	Lead    int    `json:"lead,omitempty"`    // world rank of the communicator's rank 0
	Number  uint32 `json:"number"`            // number, on the communicator and from 1, of the last of these collectives
	Name    string `json:"name"`              // name of the collective, with the world rank of its root if it has one
	Order   string `json:"order,omitempty"`   // order in which a reduction's operation combines, as in Wait.Order
	Count   uint32 `json:"count,omitempty"`   // number of collectives; 0: one
}

// has reports whether the collective with this number is one of the Count that end at Number.
// Numbers wrap.
func (b *Begun) has(number uint32) bool { return b.Number-number < max(b.Count, 1) }

// position identifies one collective. The communicators of a split share a number and have no
// rank in common; the lead tells them apart. A rank that attaches again counts from 1; the
// generation tells its programs apart. The collective that a rank has begun at a position never
// changes, so ranks may be asked one after the other.
type position struct {
	group
	number uint32
}

// side has the ranks that call the same collective at a position.
type side struct {
	name, order string
	ranks       []int
	waits       bool // one of the ranks is still in the collective
}

// Disagreements reports ranks that are or were in different collectives at one position of a
// communicator's order, while one of them waits. A program in which that happens is wrong (MPI
// 4.1, section 6.1), however far apart its ranks are.
func Disagreements(ranks []Rank) []string { return disagreements(ranks, false) }

// Disagreed is like Disagreements, for a job that has failed, whose ranks no longer wait.
func Disagreed(ranks []Rank) []string { return disagreements(ranks, true) }

// disagreeMost bounds the lines.
const disagreeMost = 4

func disagreements(ranks []Rank, over bool) (lines []string) {
	at := map[position][]side{}
	asked := numbers{}
	for i := range ranks { // collectives in which at least one rank waits
		for j := range ranks[i].Waits {
			if w := &ranks[i].Waits[j]; w.Kind == Collective {
				b := Begun{w.Context, w.Lead, w.Number, w.Name, w.Order, 1}
				note(at, &ranks[i], &b, true)
				asked.add(ranks[i].group(&b), b.Number)
			}
		}
		for j := range ranks[i].Past {
			if b := ranks[i].Past[j]; over { // of two rows of equal collectives that meet, one begins here
				b.Number -= max(b.Count, 1) - 1
				asked.add(ranks[i].group(&b), b.Number)
			}
		}
	}
	for i := range ranks {
		for j := range ranks[i].Past {
			b := ranks[i].Past[j]
			for _, n := range asked[ranks[i].group(&b)] {
				if b.has(n) {
					one := b
					one.Number = n
					note(at, &ranks[i], &one, false)
				}
			}
		}
	}
	var wrong []position
	for p, sides := range at {
		if len(sides) > 1 && !doubled(sides) {
			wrong = append(wrong, p)
		}
	}
	slices.SortFunc(wrong, func(a, b position) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.context, b.context), cmp.Compare(a.lead, b.lead), int(int32(a.number-b.number))) // the difference is correct if the numbers wrap around
	})
	for i, p := range wrong {
		if i > 0 && wrong[i-1].group == p.group {
			continue // this disagreement follows from the first one
		}
		if lines = append(lines, disagreement(p, at[p])); len(lines) == disagreeMost {
			break
		}
	}
	return lines
}

// group identifies a communicator, as in position.
type group struct {
	generation uint64
	context    uint32
	lead       int
}

// group returns the communicator of a collective that the rank has begun.
func (r *Rank) group(b *Begun) group { return group{r.Generation, b.Context, b.Lead} }

// numbers has, by communicator, the numbers of the collectives at which ranks are compared.
type numbers map[group][]uint32

// numbersMost bounds the numbers of one communicator, because an untrusted program may make
// some up. The ranks of a program wait in few collectives at a time.
const numbersMost = 256

func (n numbers) add(g group, number uint32) {
	if len(n[g]) < numbersMost && !slices.Contains(n[g], number) {
		n[g] = append(n[g], number)
	}
}

// note adds a rank to its side at a position.
func note(at map[position][]side, r *Rank, b *Begun, waits bool) {
	if b.Number == 0 {
		return // the collective has no number yet
	}
	p, rank := position{r.group(b), b.Number}, r.Rank
	sides := at[p]
	i := slices.IndexFunc(sides, func(s side) bool { return s.name == b.Name && sameOrder(s.order, b.Order) })
	if i < 0 && len(sides) == sidesMost {
		return
	}
	if i < 0 {
		sides = append(sides, side{name: b.Name, order: b.Order})
		i = len(sides) - 1
	}
	s := &sides[i]
	if i, is := slices.BinarySearch(s.ranks, rank); !is { // a rank that is in ranks waits in the collective that it has begun
		s.ranks = slices.Insert(s.ranks, i, rank)
	}
	s.waits = s.waits || waits
	at[p] = sides
}

// sidesMost bounds the sides of a position, because an untrusted program may make names up.
const sidesMost = 16

// doubled reports whether a rank is on two sides: its client has used a communicator's number
// again, and one of the two collectives was on the earlier communicator.
func doubled(sides []side) bool {
	on := map[int]bool{}
	for i := range sides {
		for _, rank := range sides[i].ranks {
			if on[rank] {
				return true
			}
			on[rank] = true
		}
	}
	return false
}

func disagreement(p position, sides []side) string {
	slices.SortFunc(sides, func(a, b side) int { return cmp.Compare(a.ranks[0], b.ranks[0]) })
	var parts []string
	for _, s := range sides {
		verb := "is in "
		switch {
		case !s.waits && len(s.ranks) > 1:
			verb = "were in "
		case !s.waits:
			verb = "was in "
		case len(s.ranks) > 1:
			verb = "are in "
		}
		name := s.name
		if s.order != "" && slices.ContainsFunc(sides, func(o side) bool { return o.name == s.name && o.order != s.order }) {
			name += " (" + s.order + ")"
		}
		parts = append(parts, Names(s.ranks)+" "+verb+name)
	}
	line := TextDisagreement + strings.Join(parts, ", ")
	if p.context != 0 {
		line += fmt.Sprintf(" (communicator %d)", p.context)
	}
	return line
}

// TextDisagreement is the beginning of a line about a disagreement.
const TextDisagreement = "ranks disagree about a collective: "

// sameOrder compares two orders. An unknown order equals every other one.
func sameOrder(a, b string) bool { return a == b || a == "" || b == "" }
