package jobrun

import (
	"context"
	"slices"
	"time"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// Deadlock is when a job in which every rank waits is suspected of a deadlock, and
// what then happens.
type Deadlock struct {
	After time.Duration // how long every rank must have waited; 0: it is not looked at
	Fails bool          // the job has failed then; else it is told
}

// Of the time for a deadlock, this part passes between two looks for one, within bounds.
const (
	deadlockLooks   = 5
	deadlockLookMin = 100 * time.Millisecond
	deadlockLookMax = 15 * time.Second
)

// deadlockStays is for how long looks must find the same: a rank that has looked in vain and
// now computes counts as waiting for 1.5 s (shm.MomentFresh).
const deadlockStays = 1600 * time.Millisecond

// stillness is what looks at the ranks of a job have found.
type stillness int

const (
	moving stillness = iota
	halted           // ranks are stopped, and all others that have not left wait
	alone            // ranks are stopped, and no others are left
	stuck
	unseen // stuck, as far as is seen
)

// watchDeadlock tells of a suspected deadlock, and of ranks that are stopped while all
// others wait, once for each, until the job ends. Several looks must find it: by the last one,
// processes that did not run for a while have taken what had come for them.
func (j *Job) watchDeadlock() {
	after := j.spec.Deadlock.After
	if after <= 0 {
		return
	}
	ctx, cancel := j.untilOver()
	defer cancel()
	look := time.NewTicker(min(max(after/deadlockLooks, deadlockLookMin), deadlockLookMax))
	defer look.Stop()
	last, told, since := moving, moving, time.Now()
	saidUnseen := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		ranks, is, known := j.stillRanks(ctx, after)
		if !known {
			continue // nothing follows from it
		}
		if is != last {
			last, since = is, time.Now()
		}
		switch {
		case is == moving && told != moving:
			j.tellGoesOn(told)
			told = moving
		case is == told || time.Since(since) < deadlockStays:
		case is == unseen:
			if !saidUnseen { // once: they may be at work
				j.err.OfferReserved("outrigger: " + why.Unseen(after) + "\n")
			}
			saidUnseen = true
		case is == alone && time.Since(since) < after: // else it is in the waits of others
		case is == halted, is == alone:
			j.tellHalted(ranks, is, after)
			told = is
		case is == stuck:
			if j.suspect(ranks) {
				return
			}
			told = stuck
		}
	}
}

func (j *Job) tellGoesOn(told stillness) {
	if told == stuck {
		j.err.OfferReserved("outrigger: the job goes on: it was no deadlock\n")
	} else {
		j.err.OfferReserved("outrigger: the job goes on\n")
	}
}

// tellHalted tells of ranks that are stopped, for which the others wait, or the job's end: no
// deadlock.
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

// stillRanks are the job's ranks if none of them moves; known is false if a sidecar did not
// answer. The first pod with a rank that moves is the last one that is asked.
func (j *Job) stillRanks(ctx context.Context, after time.Duration) (ranks []why.Rank, is stillness, known bool) {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	hidden := false
	for _, socket := range j.Metrics() {
		some, err := Why(ctx, []string{socket})
		some, local := why.Seen(some)
		hidden = hidden || local
		switch {
		case err != nil:
			return nil, moving, false
		case why.Moves(some, after):
			return nil, moving, true
		}
		ranks = append(ranks, some...)
	}
	switch {
	case why.Halted(ranks, after) != nil && why.Alone(ranks):
		return ranks, alone, true
	case hidden && why.Stuck(ranks, after):
		return ranks, unseen, true
	case hidden:
		return nil, moving, true
	case why.Stuck(ranks, after):
		return ranks, stuck, true
	case why.Halted(ranks, after) != nil:
		return ranks, halted, true
	}
	return nil, moving, true // all have left
}

// suspect tells of a deadlock, or fails the job by it.
func (j *Job) suspect(ranks []why.Rank) (failed bool) {
	text := why.Suspicion(j.spec.Deadlock.After)
	for _, line := range append([]string{text}, why.Explain(ranks)...) {
		j.err.OfferReserved("outrigger: " + line + "\n")
	}
	if j.spec.Deadlock.Fails {
		j.fail(&Failure{Text: text, Code: CodeTimeout, Suspected: true}, time.Now())
		return true
	}
	j.err.OfferReserved("outrigger: the job goes on; Ctrl-C ends it, and with --deadlock-fails it ends by itself\n")
	return false
}
