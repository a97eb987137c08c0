package podlife

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is what is known about one pod of a failed job.
type Report struct {
	Pod, FirstRank, Ranks int
	Launcher, Sidecar     *Message // termination messages of the two containers; nil: the container has left none
	Application, Daemon   *Ending  // ends of the two containers; nil: running, or not known
}

// Ending is how a container ended, according to its runtime.
type Ending struct {
	Code   int
	Signal string
	Text   string    // description of the end, such as "the container solver was killed (OOMKilled)"; empty: the exit code describes the end
	Time   time.Time // time of the end, rounded down to whole seconds
}

// Verdict is the failure that caused the others. Its text follows the rank's name, or,
// for a sidecar's own failure, the pod's: see String.
type Verdict struct {
	Pod int
	Failure
}

// String returns the verdict as a sentence.
func (v *Verdict) String() string {
	switch v.Reason {
	case SidecarLost, SidecarFailed, SidecarRestarted, TransportMissing, Undelivered, NoSidecar:
		return fmt.Sprintf("pod %d: %s", v.Pod, v.Text)
	}
	if v.Rank == NoRank {
		return "the job " + v.Text
	}
	return fmt.Sprintf("rank %d (pod %d) %s", v.Rank, v.Pod, v.Text)
}

// Blame returns the first failure of a job; nil if no report has one. The rules:
//
//   - A failure that the sidecars agreed on counts, with the text of the launcher of
//     that rank, which knows how the process ended.
//   - A launcher's first failure counts if its own sidecar had not agreed on another
//     one by then; otherwise it is a consequence. Both times are of one clock, and are
//     the times at which each program saw the failure: a launcher ends other ranks
//     after it has seen the failure, and a sidecar sees a rank vanish after the
//     launcher did.
//   - A launcher's later failures do not count: it ends its ranks when one has
//     failed, and how they end then has no meaning. Whether the sidecar had recorded
//     the vanished rank by then does not matter.
//   - If a rank closed its session while others waited for it in a collective, the
//     exits of other ranks, from a second before the sidecar's report on, are
//     consequences. If the rank could not be started, or had failed by then, that is
//     the failure: the rank left the job because of it.
//   - If a rank is refused, the exits of other ranks, from a second before the refusal
//     on, are consequences: an mpirun ends when one of its ranks does, possibly before
//     the sidecar of its pod has received the refusal.
//   - A sidecar that ended by itself is the failure of its pod's first rank.
//   - Of the remaining failures, the earliest counts. Clocks of different nodes
//     differ: this rule only decides between independent failures.
//   - Ranks that were told to end count if no other failure does, even if their
//     sidecar has seen them vanish because of that.
func Blame(reports []Report) *Verdict {
	in := inquiry{claims: map[int]*suspect{}, reports: reports}
	for i := range reports {
		in.hearSidecar(&reports[i])
	}
	for _, c := range in.claims {
		c.absent = strings.HasPrefix(c.Text, TextAbsent)
	}
	for i := range reports {
		in.hearLauncher(&reports[i])
		in.hearNoLauncher(&reports[i])
	}
	for _, c := range in.claims {
		in.suspects = append(in.suspects, *c)
	}
	if len(in.suspects) == 0 {
		return nil
	}
	first := slices.MinFunc(in.suspects, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(a.weight, b.weight), a.Time.Compare(b.Time), cmp.Compare(a.Rank, b.Rank))
	})
	if !first.heard {
		first.tellAlone()
	}
	return &first.Verdict
}

// suspect is a possible first failure.
type suspect struct {
	Verdict
	weight weight
	heard  bool // a launcher, which knows how the rank's process ended, has reported the failure
	absent bool // others have failed because the rank had closed its session
}

// tellAlone completes the text of a failure that no launcher has reported: the rank ended with
// 0, or it is not known how it ended.
func (s *suspect) tellAlone() {
	if s.refused() {
		s.Text = "was " + s.Text
		return
	}
	switch s.Reason {
	case RankVanished:
		if !strings.Contains(s.Text, TextLastError) {
			s.Text += adviceVanished
		}
		s.Text = "failed: " + s.Text
	case RanksDisagree:
		if s.absent {
			s.Text += adviceAbsent
			return
		}
		s.Text = "failed: " + s.Text
	case RankExpelled, JobAborted, JobFailed:
		s.Text = "failed: " + s.Text
	}
}

// waited reports whether a rank has waited for this one, which was absent.
func (s *suspect) waited(rank int) bool {
	return strings.HasPrefix(s.Text, TextAbsent+strconv.Itoa(rank)+TextAbsentFrom)
}

// refused reports whether the rank's MPI cannot use Outrigger. The end of its process
// then adds nothing.
func (s *suspect) refused() bool { return strings.HasPrefix(s.Text, TextRefused) }

// weight is the class of a suspect. A smaller weight goes first.
type weight int

const (
	independent weight = iota // independent of all other known failures
	preceded                  // another failure happened earlier, by the same clock
	told                      // the rank was told to end
)

type inquiry struct {
	reports  []Report
	claims   map[int]*suspect // the failures that sidecars agreed on, by rank
	suspects []suspect        // all failures that are not in claims
}

// hearSidecar adds the failure that a sidecar knows of, or its own end.
func (in *inquiry) hearSidecar(r *Report) {
	if f := r.agreed(); f != nil {
		pod := r.Pod
		if f.Rank != NoRank {
			pod = in.podOf(f.Rank)
		}
		in.claim(Verdict{pod, *f})
		return
	}
	if r.vanished() {
		in.claim(Verdict{Pod: r.Pod, Failure: Failure{
			Rank: r.FirstRank, Code: r.Daemon.Code, Signal: r.Daemon.Signal, Reason: SidecarLost, Text: r.Daemon.Text, Time: r.Daemon.Time,
		}})
	}
}

// claim keeps the earliest of several failures of one rank, with the complete text if
// another sidecar has it.
func (in *inquiry) claim(v Verdict) {
	old := in.claims[v.Rank]
	if old == nil {
		in.claims[v.Rank] = &suspect{Verdict: v}
		return
	}
	text := v.Text
	if v.Time.Before(old.Time) {
		text, old.Verdict = old.Text, v
	}
	if cut, is := strings.CutSuffix(old.Text, TextCut); is && strings.HasPrefix(text, cut) {
		old.Text = text
	}
}

// podOf returns the pod of a rank, or NoRank.
func (in *inquiry) podOf(rank int) int {
	for i := range in.reports {
		if in.reports[i].hosts(rank) {
			return in.reports[i].Pod
		}
	}
	return NoRank
}

// hearLauncher adds the failures of a pod's ranks.
func (in *inquiry) hearLauncher(r *Report) {
	if r.Launcher == nil {
		return
	}
	first := firstOf(r.Launcher.Failures)
	for i, f := range r.Launcher.Failures {
		switch c := in.claims[f.Rank]; {
		case !r.hosts(f.Rank): // no launcher reports such a rank
		case c != nil && f.Reason == Terminated && first < 0 && r.endedByThat(c, &f):
			c.weight, c.heard = told, true
			c.Code, c.Signal, c.Reason, c.Text = f.Code, f.Signal, f.Reason, f.Text
		case c != nil:
			c.confirm(&f)
		case f.Reason == Terminated:
			in.suspects = append(in.suspects, suspect{Verdict: Verdict{r.Pod, f}, weight: told, heard: true})
		case in.follows(&f):
		case i == first && !r.knewBy(f.Time):
			in.accuse(r, f)
		}
	}
}

// toldToEnd is the maximum time that a rank that was told to end may take from its
// first step, such as the end of its session. The launcher kills it after a grace
// period of 2 s.
const toldToEnd = 2500 * time.Millisecond

// endedByThat reports whether a rank vanished because its pod was told to end, and not
// some time before, according to the pod's own sidecar and the launcher's clock.
func (r *Report) endedByThat(c *suspect, own *Failure) bool {
	seen := c.Time
	if a := r.agreed(); a != nil && a.Rank == own.Rank {
		seen = a.Time
	}
	return c.Reason == RankVanished && own.Time.Sub(seen) <= toldToEnd
}

// followTime is how long before a sidecar's report a launcher may see the exit of a
// rank that the report caused. Clocks of nodes differ by less.
const followTime = time.Second

// follows reports whether a rank has exited because another one had closed its session,
// or was refused. This includes a rank that waited for the closed session, and is named
// so, and then crashed.
func (in *inquiry) follows(f *Failure) bool {
	for _, c := range in.claims {
		because := c.absent && (f.Reason == RankExited || c.waited(f.Rank)) || c.refused() && f.Reason == RankExited
		if because && f.Time.After(c.Time.Add(-followTime)) {
			return true
		}
	}
	return false
}

// firstOf returns the index of the earliest failure that was not requested; -1 if there
// is none.
func firstOf(list []Failure) int {
	first := -1
	for i := range list {
		if list[i].Reason != Terminated && (first < 0 || list[i].Time.Before(list[first].Time)) {
			first = i
		}
	}
	return first
}

// accuse adds a failure that r's sidecar did not know of. A failure that the sidecar
// agreed on later came after it.
func (in *inquiry) accuse(r *Report, f Failure) {
	in.suspects = append(in.suspects, suspect{Verdict: Verdict{r.Pod, f}, heard: true})
	if a := r.agreed(); a != nil {
		if c := in.claims[a.Rank]; c != nil {
			c.weight = preceded
		}
	}
}

// hearNoLauncher adds the end of an application without a launcher's message: the
// launcher was killed with its ranks, or there is none.
func (in *inquiry) hearNoLauncher(r *Report) {
	e := r.Application
	if e == nil || e.Code == 0 || r.Launcher != nil {
		return
	}
	f := Failure{Rank: r.FirstRank, Code: e.Code, Text: e.Text, Time: e.Time}
	f.Reason, f.Signal = OfExit(e.Code, e.Signal)
	if f.Text == "" {
		f.Text = exitText(f.Code, f.Signal)
	}
	confirmed := false
	for rank, c := range in.claims {
		if r.hosts(rank) && c.Reason == RankVanished {
			c.confirm(&f)
			confirmed = true
		}
	}
	if !confirmed && in.claims[f.Rank] == nil && !r.knewBy(e.Time.Add(time.Second)) {
		in.accuse(r, f)
	}
}

// confirm adds the launcher's text about the same rank.
func (s *suspect) confirm(own *Failure) {
	if s.Reason == JobAborted && s.Text == TextAborted && own.Clue != "" {
		s.Text += ": " + own.Clue // the clue is the reason that the rank's MPI has printed
	}
	if own.Reason == Terminated {
		return // the process ended after the failure
	}
	s.heard = true
	if s.refused() {
		s.Text = "was " + s.Text
		return
	}
	if s.absent && (own.Reason == CannotStart || !own.Time.After(s.Time)) {
		s.Code, s.Signal, s.Reason, s.Text = own.Code, own.Signal, own.Reason, own.Text
		return
	}
	switch s.Reason {
	case RankVanished:
		if strings.HasSuffix(own.Text, endedWell+TextVanished) { // the launcher's text has no cause; the sidecar's text may have one
			s.tellAlone()
			return
		}
		if _, last, is := strings.Cut(s.Text, TextLastError); is && own.Reason == RankExited {
			own.Text += ": " + last
		}
		s.Code, s.Signal, s.Reason, s.Text = own.Code, own.Signal, own.Reason, own.Text
	case JobAborted: // the rank chose the code and the text; the later end of its process adds nothing
		s.Text = "failed: " + s.Text
	case RankExpelled, RanksDisagree, JobFailed: // otherwise the rank stands for its sidecar
		s.Signal, s.Text, s.Code = own.Signal, own.Text+": "+s.Text, own.Code
	}
}

// endedWell is the start of a launcher's text about a rank that has exited with code 0.
const endedWell = "ended well, but "

// agreed returns the failure that a pod's sidecar agreed on with the others; nil if
// there is none.
func (r *Report) agreed() *Failure {
	if r.Sidecar == nil || len(r.Sidecar.Failures) == 0 {
		return nil
	}
	return &r.Sidecar.Failures[0]
}

// vanished reports whether the sidecar ended while its ranks needed it. A sidecar that
// is killed after its ranks have ended with 0 does not matter.
func (r *Report) vanished() bool {
	return r.Daemon != nil && r.Daemon.Code != 0 && (r.Application == nil || r.Application.Code != 0)
}

func (r *Report) hosts(rank int) bool { return rank >= r.FirstRank && rank < r.FirstRank+r.Ranks }

// knewBy reports whether the pod's sidecar had agreed on a failure at t, or had ended.
func (r *Report) knewBy(t time.Time) bool {
	if a := r.agreed(); a != nil {
		// A restarted sidecar reports the time of its start, and not that of its loss.
		return a.Reason == SidecarRestarted || !a.Time.After(t)
	}
	return r.vanished() && !r.Daemon.Time.After(t)
}
