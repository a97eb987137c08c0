package jobrun

import (
	"context"
	"time"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// Deadlock is when a job in which every rank waits is suspected of a deadlock, and
// what then happens.
type Deadlock struct {
	After time.Duration // how long every rank must have waited; 0: it is not looked at
	Fails bool          // the job has failed then; else it is told
}

// Bounds of the time between two looks for a deadlock.
const (
	deadlockLookMin = 100 * time.Millisecond
	deadlockLookMax = 15 * time.Second
)

// watchDeadlock tells of a suspected deadlock, once for each, until the job ends.
func (j *Job) watchDeadlock() {
	after := j.spec.Deadlock.After
	if after <= 0 {
		return
	}
	ctx, cancel := j.untilOver()
	defer cancel()
	look := time.NewTicker(min(max(after/4, deadlockLookMin), deadlockLookMax))
	defer look.Stop()
	told := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		ranks, known := j.stuckRanks(ctx, after)
		switch {
		case !known: // nothing follows from it
		case told && ranks == nil:
			j.err.Tell("outrigger: the job goes on: it was no deadlock\n")
			told = false
		case ranks != nil:
			if j.suspect(ranks, told) {
				return
			}
			told = true
		}
	}
}

// untilOver is a context that ends with the job.
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

// stuckRanks are the job's ranks if a deadlock is suspected, nil if not; known is
// false if a sidecar did not answer. The first pod with a rank that moves is the
// last one that is asked.
func (j *Job) stuckRanks(ctx context.Context, after time.Duration) (ranks []why.Rank, known bool) {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	for _, socket := range j.Metrics() {
		some, err := Why(ctx, []string{socket})
		switch {
		case err != nil:
			return nil, false
		case why.Moves(some, after):
			return nil, true
		}
		ranks = append(ranks, some...)
	}
	if !why.Stuck(ranks, after) { // all have left
		return nil, true
	}
	return ranks, true
}

// suspect tells of a deadlock, once, or fails the job by it: unless some of its ranks
// may compute meanwhile, as long as they may.
func (j *Job) suspect(ranks []why.Rank, told bool) (failed bool) {
	fails := j.spec.Deadlock.Fails && why.Blocked(ranks)
	if told && !fails {
		return false
	}
	text := why.Suspicion(j.spec.Deadlock.After)
	for _, line := range append([]string{text}, why.Explain(ranks)...) {
		j.err.Tell("outrigger: " + line + "\n")
	}
	if fails {
		j.fail(&Failure{Text: text, Code: CodeTimeout, Suspected: true}, time.Now())
		return true
	}
	j.err.Tell("outrigger: the job goes on; Ctrl-C ends it (ranks that compute with receives or collectives open look the same)\n")
	return false
}
