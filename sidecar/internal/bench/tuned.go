package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// keepWithin is the gain, in per cent, from which another algorithm than the built-in one is
// chosen, and keepTurns the turns, one of so many, in which it may be the slower one. Below that,
// the choice would follow the noise of the machine.
const (
	keepWithin = 5
	keepTurns  = 5
)

// Tuned has the times of one size of a collective.
type Tuned struct {
	Op       string
	Bytes    int    // Call.Bytes
	Builtin  string // the algorithm without a rule
	measured []algorithmTimes
}

// algorithmTimes has the times of an algorithm, in microseconds, one for each turn.
type algorithmTimes struct {
	name string
	us   []float64
}

// Add adds the time of an algorithm in the next turn.
func (t *Tuned) Add(algorithm string, us float64) {
	at := slices.IndexFunc(t.measured, func(m algorithmTimes) bool { return m.name == algorithm })
	if at < 0 {
		at = len(t.measured)
		t.measured = append(t.measured, algorithmTimes{name: algorithm})
	}
	t.measured[at].us = append(t.measured[at].us, us)
}

// Best returns the algorithm with the shortest median of those that are clearly faster than the
// built-in one, or else the built-in one.
func (t *Tuned) Best() string {
	at := slices.IndexFunc(t.measured, func(m algorithmTimes) bool { return m.name == t.Builtin })
	if at < 0 {
		return t.Builtin
	}
	builtin := t.measured[at].us
	best, least := t.Builtin, Median(builtin)*(1-keepWithin/100.0)
	for _, m := range t.measured {
		slower := 0
		for i := range min(len(m.us), len(builtin)) {
			if m.us[i] >= builtin[i] {
				slower++
			}
		}
		if us := Median(m.us); us < least && slower <= len(builtin)/keepTurns {
			best, least = m.name, us
		}
	}
	return best
}

// text returns the algorithms and the medians of their times, the shortest first.
func (t *Tuned) text() string {
	list := slices.Clone(t.measured)
	slices.SortStableFunc(list, func(a, b algorithmTimes) int { return cmp.Compare(Median(a.us), Median(b.us)) })
	var words []string
	for _, m := range list {
		words = append(words, fmt.Sprintf("%s %.1f us", jobdoc.ProfileWord(m.name), Median(m.us)))
	}
	if t.Op != "barrier" {
		return Size(t.Bytes) + ": " + strings.Join(words, ", ")
	}
	return strings.Join(words, ", ")
}

// Shape is the job for which a table was measured.
type Shape struct {
	Ranks, Pods int
	On          string // transport and machine, for a comment
}

// ruleBytes returns the size of a rule for a collective of so many bytes (Call.Bytes): the rules of
// a reduce-scatter count all blocks.
func (s *Shape) ruleBytes(op string, bytes int) int64 {
	if op == "reduce-scatter" {
		return int64(bytes) * int64(s.Ranks)
	}
	return int64(bytes)
}

// WriteTable writes a FabricProfile with a rule for each range of sizes that one algorithm serves
// best. sizes has the sizes of each collective in ascending order, one collective after the other.
func WriteTable(w io.Writer, s *Shape, sizes []Tuned) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Algorithms of collectives for %d ranks in %d pods, measured by outrigger bench collectives --tune
# (%s). Behind each size are the medians of the times.
apiVersion: %s
kind: FabricProfile
metadata:
  name: tuned-%d-ranks-%d-pods
spec:
  collectives:
`, s.Ranks, s.Pods, s.On, v1alpha1.GroupVersion, s.Ranks, s.Pods)
	for i := range sizes {
		t, best := &sizes[i], sizes[i].Best()
		if i == 0 || sizes[i-1].Op != t.Op {
			fmt.Fprintf(&b, "  # %s\n", jobdoc.ProfileWord(t.Op))
		}
		fmt.Fprintf(&b, "  # %s\n", t.text())
		if i+1 < len(sizes) && sizes[i+1].Op == t.Op && sizes[i+1].Best() == best {
			continue // the rule follows behind the last of these sizes
		}
		fmt.Fprintf(&b, "  - {collective: %s, ranks: %d, pods: %d, ", jobdoc.ProfileWord(t.Op), s.Ranks, s.Pods)
		if most := t.Bytes; most > 0 {
			if i+1 < len(sizes) && sizes[i+1].Op == t.Op {
				most *= 2 // of the powers of two up to the next size, which is 8 times as large, those that are nearer to this one
			}
			fmt.Fprintf(&b, "maxBytes: %d, ", s.ruleBytes(t.Op, most))
		}
		fmt.Fprintf(&b, "algorithm: %s}\n", jobdoc.ProfileWord(best))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
