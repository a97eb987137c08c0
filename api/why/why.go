// Package why explains what the ranks of a job wait for. It reduces the reports of all
// sidecars about their own ranks to the few lines that a user needs if a program hangs.
package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// Kinds of waits.
const (
	Recv       = "recv"
	Send       = "send"
	Probe      = "probe"
	Collective = "collective"
	OneSided   = "one-sided"
)

// Values of Wait.Repeats.
const (
	Iprobe  = "iprobe"
	Improbe = "improbe"
	Access  = "access"
)

// Any is the peer of a wait for any rank.
const Any = -1

// Rank is a rank and its waits.
type Rank struct {
	Rank    int       `json:"rank"`
	State   string    `json:"state,omitempty"`   // NotStarted, Left or Ended; "": the rank is attached
	Meeting float64   `json:"meeting,omitempty"` // seconds for which the rank has been in a call in which all ranks of an MPI meet, such as MPI_Init
	Stopped int       `json:"stopped,omitempty"` // id of the rank's process, if the process is stopped by a signal, or frozen
	Frozen  bool      `json:"frozen,omitempty"`  // a control group of the rank's process is frozen
	Quiet   float64   `json:"quiet,omitempty"`   // seconds since the rank last began or ended a call
	Free    bool      `json:"free,omitempty"`    // the rank has waits, and is in no call without a time limit: it may compute, or continue at any time
	Own     int       `json:"own,omitempty"`     // number of receives that the rank's MPI keeps open for itself; Waits does not have them
	Unread  bool      `json:"unread,omitempty"`  // the rank has unread completions
	Moves   bool      `json:"moves,omitempty"`   // a message of the rank's requests is in flight, or one to another pod
	Others  bool      `json:"others,omitempty"`  // Moves is set for messages of other ranks of the pod alone
	Waits   []Wait    `json:"waits,omitempty"`   // open requests of the rank, the oldest first
	More    int       `json:"more,omitempty"`    // number of open requests that Waits does not list
	Here    []Message `json:"here,omitempty"`    // the oldest messages for which the rank has no receive yet
	Count   int       `json:"count,omitempty"`   // number of all messages for which the rank has no receive yet, including those in Here
	Locks   []Lock    `json:"locks,omitempty"`   // locks of the rank's windows for which other ranks wait
	Local   bool      `json:"local,omitempty"`   // the rank's MPI sends messages within the pod through its own shared memory, which the sidecar cannot see
	Awaits  string    `json:"awaits,omitempty"`  // what the rank's starting sidecar waits for outside of the pod
	Past    []Begun   `json:"past,omitempty"`    // the last collectives that the rank has begun, the last one first; also for a rank that has left

	// Generation is the generation of its attachment, from 1; all ranks of a pod have the
	// same. 0: the sidecar is of a release without it, or is starting.
	Generation uint64 `json:"generation,omitempty"`
	Returns    bool   `json:"returns,omitempty"` // the rank has left this generation, and its process may attach in a later one
}

// States of a rank that is not attached.
const (
	NotStarted = "not started" // the rank has never attached
	Left       = "left"        // the rank has closed its session
	Ended      = "ended"       // the rank's process has ended without MPI
)

// Wait is a request that has not ended.
type Wait struct {
	Kind    string  `json:"kind"`
	Name    string  `json:"name,omitempty"` // for a collective or one-sided operation; for MPI the collective to which the message belongs
	Seconds float64 `json:"seconds"`
	Peer    int     `json:"peer"`              // rank with which the message is exchanged, or Any
	Context uint32  `json:"context,omitempty"` // number of the communicator; for a one-sided operation, of the window
	Tag     uint64  `json:"tag"`
	Ignore  uint64  `json:"ignore,omitempty"`
	Bytes   uint64  `json:"bytes"`
	Moving  bool    `json:"moving,omitempty"` // the request's message is matched and in flight
	Round   int     `json:"round,omitempty"`
	Rounds  int     `json:"rounds,omitempty"`
	Number  uint32  `json:"number,omitempty"` // for a collective: its number on the communicator, from 1; 0: the collective has no number yet
	Lead    int     `json:"lead,omitempty"`   // rank 0 of the communicator: disjoint communicators may have the same number
	Group   int     `json:"group,omitempty"`  // number of ranks of the communicator
	For     []int   `json:"for,omitempty"`    // ranks for which a collective's round waits
	MPI     string  `json:"mpi,omitempty"`    // for a program over MPI: MPIUser, MPICollective or MPIUnknown; context and tag are the MPI's
	// Synchronous says that a send of MPI has to wait for its receive, however short it is.
	Synchronous bool `json:"synchronous,omitempty"`
	// Repeats is Iprobe or Improbe for a probe that does not wait, has found nothing, and is
	// called again and again, and Access for one-sided accesses of MPI that have the same
	// results again and again.
	Repeats string `json:"repeats,omitempty"`
	Order   string `json:"order,omitempty"` // order in which a reduction's operation combines: commutative or not

	lock *Lock // for a wait for a lock, if its target has reported the holders
}

// Message is a message that has arrived.
type Message struct {
	Source  int    `json:"source"`
	Context uint32 `json:"context,omitempty"`
	Tag     uint64 `json:"tag"`
	Bytes   uint64 `json:"bytes"`
	MPI     string `json:"mpi,omitempty"`  // as in Wait
	Name    string `json:"name,omitempty"` // as in Wait
}

// lineLimit bounds the lines about single ranks: those that have waited longest are reported.
const lineLimit = 32

// Explain returns what the ranks of a job wait for: first the mistakes that are visible on
// their own, then a line for each rank, or for each set of ranks with the same waits.
func Explain(ranks []Rank) []string {
	ranks = slices.Clone(onTheirWay(ranks))
	slices.SortFunc(ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	findLocks(ranks)
	lines := Disagreements(ranks)
	lines = append(lines, crossed(ranks)...)
	if len(lines) == 0 { // a disagreement or a crossing explains why ranks wait for each other
		lines = append(cycles(ranks), behind(ranks)...)
	}
	lines = append(stopped(ranks), lines...) // a stopped rank may be the only problem
	lines = append(lines, outrun(ranks)...)
	lines = append(lines, deserted(ranks)...)
	lines = append(lines, forsaken(ranks)...)
	return append(lines, perRank(ranks)...)
}

// perRank returns a line for each group of ranks with the same waits.
func perRank(ranks []Rank) []string {
	type group struct {
		text  string
		ranks []int
		since float64
		hint  bool
	}
	var groups []*group
	byText := map[string]*group{}
	idle := []int{}
	for _, r := range ranks {
		if r.State == "" && r.Meeting == 0 && len(r.Waits) == 0 && r.Count == 0 && !r.inMPI() {
			if r.Stopped == 0 { // a stopped rank is reported as stopped
				idle = append(idle, r.Rank)
			}
			continue
		}
		text := r.text()
		key := text + r.contexts()
		g := byText[key]
		if g == nil {
			g = &group{text: text, hint: r.hint() != ""}
			byText[key] = g
			groups = append(groups, g)
		}
		g.ranks = append(g.ranks, r.Rank)
		if r.Meeting > 0 {
			g.since = max(g.since, r.Meeting)
		} else if r.inMPI() {
			g.since = max(g.since, r.Quiet)
		} else if len(r.Waits) > 0 {
			g.since = max(g.since, r.Waits[0].Seconds)
		}
	}
	if len(groups) > lineLimit {
		slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.since, a.since) })
	}
	// Waits that may be mistakes themselves come first: the others may be their consequences.
	slices.SortStableFunc(groups, func(a, b *group) int {
		switch {
		case a.hint == b.hint:
			return 0
		case a.hint:
			return -1
		}
		return 1
	})
	var lines []string
	for i, g := range groups {
		if i == lineLimit {
			n := 0
			for _, g := range groups[i:] {
				n += len(g.ranks)
			}
			lines = append(lines, fmt.Sprintf("%d more ranks wait, for less long", n))
			break
		}
		head := Names(g.ranks)
		if g.since > 0 {
			verb := " waits "
			if len(g.ranks) > 1 {
				verb = " wait "
			}
			head += verb + Time(g.since)
		}
		lines = append(lines, head+": "+plural(g.text, len(g.ranks)))
	}
	if len(idle) > 0 {
		verb := " waits"
		if len(idle) > 1 {
			verb = " wait"
		}
		text := " for no message: the program computes, or waits for something else"
		if slices.ContainsFunc(ranks, func(r Rank) bool { return r.Local }) {
			text += ", such as a message within its pod, where its MPI uses shared memory of its own"
		}
		lines = append(lines, Names(idle)+verb+text)
	}
	return lines
}

// contexts distinguishes ranks whose waits have the same text, in communicators of MPI that
// have no name for a user.
func (r *Rank) contexts() string {
	var contexts []uint32
	for i := range r.Waits {
		if w := &r.Waits[i]; r.Meeting == 0 && w.MPI != "" && w.Group == 0 {
			contexts = append(contexts, w.Context)
		}
	}
	return fmt.Sprint(slices.Compact(contexts))
}

// plural returns the text about a state for n ranks.
func plural(text string, n int) string {
	if rest, is := strings.CutPrefix(text, "has "); is && n > 1 {
		return "have " + rest
	}
	return text
}

// text returns what a rank waits for, without its number and time.
func (r *Rank) text() string {
	if r.Meeting > 0 { // an MPI may have receives of its own at that time
		return "in MPI_Init or MPI_Finalize, for all ranks"
	}
	if r.State == NotStarted && r.Awaits != "" {
		return "has not started: the sidecar waits for " + r.Awaits
	}
	if r.State == NotStarted && r.Returns {
		return "has not attached again to a sidecar"
	}
	if r.State != "" {
		return "has " + map[string]string{NotStarted: "not attached to a sidecar", Left: "left the job", Ended: "ended without MPI"}[r.State]
	}
	var parts []string
	for i := range r.Waits {
		if x := r.Waits[i].text(); r.Waits[i].MPI == "" || !slices.Contains(parts, x) { // a collective may have many equal ones
			parts = append(parts, x)
		}
	}
	text := strings.Join(parts, ", ")
	switch {
	case r.Unread && text != "":
		text += " (something has come for it, which its process has not taken: it computes, or does not run)"
	case r.Free && text != "":
		text += " (in no call that waits for good: it may compute, or look from time to time)"
	}
	if r.More > 0 {
		text += fmt.Sprintf(", and %d more requests", r.More)
	}
	if text == "" && r.inMPI() {
		text = "in a call of MPI that has no receive of its own open, such as MPI_Win_lock or MPI_Win_start"
	}
	if text == "" {
		text = "waits for nothing"
	}
	if r.Count > 0 {
		var here []string
		for _, m := range r.Here {
			here = append(here, m.text())
		}
		text += "; unexpected here: " + strings.Join(here, "; ")
		if more := r.Count - len(r.Here); more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		text += r.hint()
	}
	if r.Local {
		text += "; what it waits for within its pod is not seen: its MPI uses shared memory of its own there"
	}
	return text
}

// inMPI reports whether the rank has no request of its own while its MPI polls.
func (r *Rank) inMPI() bool { return r.Own > 0 && !r.Free && len(r.Waits) == 0 }

// hint returns the likely mistake if a message almost matches a wait.
func (r *Rank) hint() string {
	for _, w := range r.Waits {
		if w.Kind != Recv && w.Kind != Probe || w.Moving || w.MPI == MPIUnknown || w.MPI == MPICollective {
			continue
		}
		for _, m := range r.Here {
			if m.MPI != w.MPI {
				continue
			}
			source := w.Peer == Any || w.Peer == m.Source
			tag := (w.Tag^m.Tag)&^w.Ignore == 0
			switch {
			case source && tag && w.Context != m.Context:
				return " (another communicator?)"
			case source && !tag && w.Context == m.Context:
				return " (a wrong tag?)"
			case !source && tag && w.Context == m.Context:
				return " (a wrong source?)"
			}
		}
	}
	return ""
}

func (m Message) text() string {
	if m.MPI != "" {
		return m.mpiText()
	}
	return fmt.Sprintf("from %d tag %d, %s", m.Source, m.Tag, memory.Text(m.Bytes))
}

func (w *Wait) text() string {
	if w.MPI != "" {
		return w.mpiText()
	}
	switch w.Kind {
	case Recv, Probe:
		text := cmp.Or(w.Repeats, w.Kind) + " from " + rankName(w.Peer)
		switch w.Ignore {
		case 0:
			text += fmt.Sprintf(" tag %d", w.Tag)
		case ^uint64(0):
			text += " any tag"
		default:
			text += fmt.Sprintf(" tag %#x but for %#x", w.Tag, w.Ignore)
		}
		if w.Moving {
			text += fmt.Sprintf(", %s on their way", memory.Text(w.Bytes))
		}
		return text + w.communicator() + w.vain()
	case Send:
		text := fmt.Sprintf("send to %s tag %d, %s", rankName(w.Peer), w.Tag, memory.Text(w.Bytes))
		if w.Moving {
			return text + " on their way" + w.communicator()
		}
		return text + ", no receive" + w.communicator()
	case Collective:
		text := w.Name
		if w.Rounds > 1 {
			text += fmt.Sprintf(" in round %d of %d", w.Round, w.Rounds)
		}
		if len(w.For) > 0 {
			text += " for " + Names(w.For)
		}
		return text + w.communicator()
	}
	if w.Repeats == Access {
		return fmt.Sprintf("one-sided accesses at rank %d, again and again, which change nothing (MPI_Win_lock, or a loop that polls?)", w.Peer)
	}
	text := fmt.Sprintf("%s of window %d", w.Name, w.Context)
	if w.Peer != Any {
		text += fmt.Sprintf(" at rank %d", w.Peer)
	}
	return text + w.lock.text()
}

// vain returns the end of the text of a probe that is repeated.
func (w *Wait) vain() string {
	if w.Repeats == "" {
		return ""
	}
	return ", again and again, which finds nothing"
}

func (w *Wait) communicator() string {
	if w.Context == 0 {
		return ""
	}
	return fmt.Sprintf(" in communicator %d", w.Context)
}

func rankName(r int) string {
	if r == Any {
		return "any rank"
	}
	return fmt.Sprint(r)
}

// Names lists ranks for a reader: rank 3, ranks 0 to 7, ranks 1, 4 and 6.
func Names(ranks []int) string {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			parts = append(parts, fmt.Sprint(ranks[i]))
		case 1:
			parts = append(parts, fmt.Sprint(ranks[i]), fmt.Sprint(ranks[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d to %d", ranks[i], ranks[j]))
		}
		i = j + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0]
	}
	const most = 8
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("others, %d in all", len(ranks)))
	}
	if last := len(parts) - 1; last > 0 {
		return "ranks " + strings.Join(parts[:last], ", ") + " and " + parts[last]
	}
	return "ranks " + parts[0]
}

// Time formats seconds for a reader.
func Time(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
