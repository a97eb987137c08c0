package jobrun

import (
	"context"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// Ranks that disagree about a collective in which no message of one meets another's
// are seen from here only: what each has begun is held against the others'.

// Bounds of the looks for that: a question to every sidecar, which costs it some
// 100 us, and for a large job more rarely. What one look has found the next one tells:
// ranks that come a moment later are of some mind, too.
const (
	disagreeLook  = 700 * time.Millisecond
	disagreeShare = 50 // a look's time is at most 1/50 of all
)

// watchDisagreement tells of the first disagreement, once, or fails the job by it where
// a suspected deadlock does.
func (j *Job) watchDisagreement() {
	if j.spec.Deadlock.After <= 0 {
		return
	}
	ctx, cancel := j.untilOver()
	defer cancel()
	found := false
	for pause := disagreeLook; ; {
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
		pause = max(disagreeLook, disagreeShare*time.Since(begun))
	}
}

// disagreements are what ranks disagree about, by what sidecars know of them. What one
// that does not answer knows may be missing, and cannot make the rest untrue.
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
	j.err.OfferReserved("outrigger: the job goes on; who waits in it may do so for ever: Ctrl-C ends it\n")
}

// nameDisagreement puts what ranks disagreed about before the failure that followed
// from it: one that leaves makes another one fail that waits for it.
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

// withDispute is f with what ranks disagreed about, if that is known. j.mu is held.
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
