package jobrun

import (
	"context"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// If ranks disagree about a collective in which no message of one rank meets one of another
// rank, no sidecar can detect it. This process compares the collectives that all ranks have
// begun.

// Bounds of the interval between comparisons: each is a request to every sidecar, which
// costs it some 100 us, and for a large job the interval grows. A disagreement is reported
// if two successive comparisons find it: a rank that begins a moment later may agree with
// the others.
const (
	disagreePause = 700 * time.Millisecond
	disagreeShare = 50 // a comparison takes at most 1/50 of the time
)

// watchDisagreement reports the first disagreement, once, or fails the job because of it if
// a suspected deadlock does.
func (j *Job) watchDisagreement() {
	if j.spec.Deadlock.After <= 0 {
		return
	}
	ctx, cancel := j.untilOver()
	defer cancel()
	found := false
	for pause := disagreePause; ; {
		select {
		case <-ctx.Done():
			return
		case <-j.failed:
			return
		case <-time.After(pause):
		}
		begun := time.Now()
		if lines := j.disagreements(ctx, why.Disagreements); found && len(lines) > 0 {
			j.tellDisagreement(lines)
			return
		} else if len(lines) > 0 {
			found = true
		}
		pause = max(disagreePause, disagreeShare*time.Since(begun))
	}
}

// disagreements returns what ranks disagree about, by the reports of the sidecars. The
// report of a sidecar that does not answer may be missing, which does not make the other
// results wrong.
func (j *Job) disagreements(ctx context.Context, of func([]why.Rank) []string) []string {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	ranks, _ := Why(ctx, j.Metrics())
	return of(ranks)
}

func (j *Job) tellDisagreement(lines []string) {
	for _, line := range lines {
		j.err.OfferReserved("outrigger: " + line + "\n")
	}
	if j.spec.Deadlock.Fails {
		j.fail(&Failure{Text: lines[0], Code: CodeTimeout, Suspected: true}, time.Now())
		return
	}
	j.err.OfferReserved("outrigger: the job goes on; ranks that wait in it may wait for ever: Ctrl-C ends it\n")
}

// nameDisagreement adds a disagreement of ranks to the failure that followed from it: a
// rank that leaves makes a rank that waits for it fail.
func (j *Job) nameDisagreement(ctx context.Context) {
	f := j.failure()
	if f == nil || f.Suspected || f.Verdict == nil || strings.Contains(f.Text, "disagree") {
		return
	}
	if lines := j.disagreements(ctx, why.Disagreed); len(lines) > 0 {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.disputed = lines[0]
		j.first = j.withDispute(f)
	}
}

// withDispute returns f with the disagreement of ranks, if one is known. j.mu is held.
func (j *Job) withDispute(f *Failure) *Failure {
	if j.disputed == "" || strings.Contains(f.Text, "disagree") {
		return f
	}
	named, v := *f, *f.Verdict
	named.Text = j.disputed + "; then " + f.Text
	v.Text += "; " + j.disputed
	named.Verdict = &v
	return &named
}
