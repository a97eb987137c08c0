package jobrun

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/why"
)

// Deadlock configures when a job in which every rank waits is suspected of a deadlock, and
// the consequence.
type Deadlock struct {
	After time.Duration // how long every rank must have waited; 0: the job is not watched
	Fails bool          // the job fails then; otherwise it is reported
}

// The ranks are checked deadlockChecks times within Deadlock.After, within these bounds of
// the interval.
const (
	deadlockChecks   = 5
	deadlockCheckMin = 100 * time.Millisecond
	deadlockCheckMax = 15 * time.Second
)

// deadlockStays is how long the checks must have the same result: a rank that has polled
// without result and now computes counts as waiting for 1.5 s (shm.MomentFresh).
const deadlockStays = 1600 * time.Millisecond

// stillness is the result of a check of the ranks of a job.
type stillness int

const (
	moving  stillness = iota
	halted            // ranks are stopped, and all others that have not left wait
	alone             // ranks are stopped, and all others have left
	stuck             // all ranks that have not left wait
	knotted           // some ranks wait for each other alone (why.Knot)
	unseen            // stuck, except for ranks whose messages the sidecars do not see
)

// watchDeadlock reports a suspected deadlock, and ranks that are stopped while all others
// wait, once for each, until the job ends. Several checks must agree: by the last one,
// processes that did not run for a while have taken the completions that had arrived for
// them.
func (j *Job) watchDeadlock() {
	after := j.spec.Deadlock.After
	if after <= 0 {
		return
	}
	ctx, cancel := j.untilOver()
	defer cancel()
	look := time.NewTicker(min(max(after/deadlockChecks, deadlockCheckMin), deadlockCheckMax))
	defer look.Stop()
	last, told, since := moving, moving, time.Now()
	saidUnseen := false
	var suspects suspects // those that were reported last
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		asked := time.Now()
		ranks, is, known := j.stillRanks(ctx, after)
		if !known {
			continue // the check has no result
		}
		if is != last {
			last, since = is, time.Now()
		}
		switch {
		case j.failure() != nil:
			return // the end of the job ends the waits
		case is == moving && (told == stuck || told == knotted) && suspects.remain(ranks, time.Now()):
		case is == moving && told != moving:
			j.tellGoesOn(told)
			told = moving
		case is == told || time.Since(since) < deadlockStays:
		case is == unseen:
			if !saidUnseen { // only once in the job: the ranks may be at work, and then this state comes and goes
				j.tell(why.Unseen(after), ranks)
			}
			saidUnseen = true
		case is == alone && time.Since(since) < after: // until then, the check of the waits reports it
		case is == halted, is == alone:
			j.tellHalted(ranks, is, after)
			told = is
		case is == stuck, is == knotted:
			if j.suspect(ranks, is) {
				return
			}
			told, suspects = is, newSuspects(ranks, asked)
		}
	}
}

// suspects are the ranks of a suspected deadlock that had not left.
type suspects struct {
	ranks []why.Rank
	found time.Time // when their sidecars were asked
}

func newSuspects(ranks []why.Rank, found time.Time) suspects {
	left := func(r why.Rank) bool { return r.State != "" }
	return suspects{slices.DeleteFunc(slices.Clone(ranks), left), found}
}

// remain reports whether none of the suspects has begun or ended a call since. One that seems to compute may
// still wait: on a crowded machine the time of interrupts looks like computation.
func (s *suspects) remain(ranks []why.Rank, now time.Time) bool {
	return len(s.ranks) > 0 && why.Remain(s.ranks, ranks, now.Sub(s.found))
}

func (j *Job) tellGoesOn(told stillness) {
	if told == stuck || told == knotted {
		j.err.OfferReserved("outrigger: the job goes on: it was no deadlock\n")
	} else {
		j.err.OfferReserved("outrigger: the job goes on\n")
	}
}

// tellHalted reports ranks that are stopped, for which the other ranks or the job's end
// wait. It is no deadlock.
func (j *Job) tellHalted(ranks []why.Rank, is stillness, after time.Duration) {
	j.err.OfferReserved("outrigger: " + haltedText(ranks, is, after) + "\n")
	for _, line := range why.Explain(ranks) {
		j.err.OfferReserved("outrigger: " + line + "\n")
	}
}

func haltedText(ranks []why.Rank, is stillness, after time.Duration) string {
	left := slices.ContainsFunc(ranks, func(r why.Rank) bool { return r.State == why.Left })
	switch {
	case is == alone && left:
		return "ranks are stopped, and all others have left the job"
	case is == alone:
		return "all ranks are stopped"
	case left:
		return "ranks are stopped, and all others that have not left the job have waited for " + why.Time(after.Seconds()) + " or longer"
	}
	return "ranks are stopped, and all others have waited for " + why.Time(after.Seconds()) + " or longer"
}

// untilOver returns a context that ends with the job.
func (j *Job) untilOver() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-j.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// stillRanks returns the job's ranks, or, if some of them make progress, those that wait for each
// other alone; known is false if a sidecar did not answer.
func (j *Job) stillRanks(ctx context.Context, after time.Duration) (ranks []why.Rank, is stillness, known bool) {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	begun := time.Now()
	all, err := Why(ctx, j.Metrics())
	if err != nil {
		return nil, moving, false
	}
	ranks, hidden := why.Seen(all)
	if why.Moves(ranks, after) {
		// All of them have waited since before the first sidecar was asked.
		if knot := why.Knot(all, after+time.Since(begun)); knot != nil {
			return knot, knotted, true
		}
		return all, moving, true
	}
	switch {
	case why.Halted(ranks, after) != nil && why.Alone(ranks):
		return ranks, alone, true
	case hidden && why.Stuck(ranks, after):
		return all, unseen, true
	case hidden:
		return all, moving, true
	case why.Stuck(ranks, after):
		return ranks, stuck, true
	case why.Halted(ranks, after) != nil:
		return ranks, halted, true
	}
	return nil, moving, true // all have left
}

// mayFail reports whether a suspected deadlock may fail a job. Ranks of an MPI that keeps receives
// open for itself may be released by a message that is not known, while other ranks go on.
func mayFail(ranks []why.Rank, is stillness) bool {
	return is != knotted || !slices.ContainsFunc(ranks, func(r why.Rank) bool { return r.Own > 0 })
}

// tell prints a sentence about ranks that wait, what they wait for, and a remedy.
func (j *Job) tell(text string, ranks []why.Rank) {
	lines := why.Explain(ranks)
	for _, line := range append([]string{text}, lines...) {
		j.err.OfferReserved("outrigger: " + line + "\n")
	}
	if remedy := podlife.Remedy(strings.Join(lines, "\n")); remedy != "" {
		j.err.OfferReserved("outrigger: remedy: " + remedy + "\n")
	}
}

// suspect reports a suspected deadlock, and fails the job if Deadlock.Fails is set.
func (j *Job) suspect(ranks []why.Rank, is stillness) (failed bool) {
	text := why.Suspicion(j.spec.Deadlock.After)
	if is == knotted {
		text = why.KnotText(ranks, j.spec.Deadlock.After)
	}
	j.tell(text, ranks)
	may := mayFail(ranks, is)
	if j.spec.Deadlock.Fails && may {
		j.fail(&Failure{Text: text, Code: CodeTimeout, Suspected: true}, time.Now())
		return true
	}
	if may {
		j.err.OfferReserved("outrigger: the job goes on; Ctrl-C ends it, and with --deadlock-fails it ends by itself\n")
	} else {
		j.err.OfferReserved("outrigger: the job goes on; Ctrl-C ends it\n")
	}
	return false
}
