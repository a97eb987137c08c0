package jobrun

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Times of the end of a job whose ranks ignore SIGTERM.
const (
	// nameAfter is when the cause is named before the ranks are killed: most ranks end
	// sooner, and the cause is then said once, at the end.
	nameAfter = 300 * time.Millisecond
	// againPause is how often launchers are told that the grace is over.
	againPause = 20 * time.Millisecond
)

// watchKill watches for the wish to end a job at once that ends: the second signal, or the
// first one if the job has failed by itself. It returns the context of what is asked of
// sidecars meanwhile, and the end of the watch.
func (j *Job) watchKill(asked context.Context, o outcome) (ending context.Context, unwatch func()) {
	ending, cut := context.WithCancel(context.WithoutCancel(asked))
	first := asked.Done()
	if o != hasFailed || asked.Err() != nil { // it is what ends the job, or came with that
		first = nil
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-j.spec.AtOnce:
		case <-first:
		case <-over:
			return
		}
		j.hurry()
		close(j.now)
		cut()
	}()
	return ending, func() { close(over); cut() }
}

// awaitRanks waits for the end of the launchers, which were told to end: for the grace of
// their ranks, or no longer than it takes to kill the ranks if that is wished.
func (j *Job) awaitRanks() {
	over, late, name := time.After(j.patience), time.After(j.patience+2*time.Second), time.After(nameAfter)
	now, tick := j.now, time.NewTicker(againPause)
	defer tick.Stop()
	again := (<-chan time.Time)(nil)
	for {
		select {
		case <-j.allEnded:
			return
		case <-late:
			return
		case <-name:
			j.nameFirst()
		case <-over: // a launcher may know of a longer one
			over, again = nil, tick.C
		case <-now:
			now, again = nil, tick.C
		case <-again:
			j.stop(j.launches) // a second SIGTERM ends their grace
		}
	}
}

// nameFirst names the cause of the end before ranks are killed for it.
func (j *Job) nameFirst() {
	if j.cause == nil {
		return
	}
	text := j.cause.Error()
	if f := (*Failure)(nil); errors.As(j.cause, &f) {
		text = f.Text
	}
	seconds := strconv.FormatFloat(j.patience.Seconds(), 'g', -1, 64)
	j.err.OfferReserved(fmt.Sprintf("outrigger: the job ends: %s; ranks that have not ended are killed %s s after SIGTERM, by Ctrl-C at once\n", text, seconds))
}

// passOnNotices gives the ranks the signals that come for them. A launcher whose ranks have
// not started is left out: it may not have begun to listen.
func (j *Job) passOnNotices() {
	for {
		select {
		case <-j.over:
			return
		case s := <-j.spec.Notices:
			j.mu.Lock()
			for pod, c := range j.launches {
				for rank, p := j.layout.doc.Pods[pod].FirstRank, j.layout.doc.Pods[pod]; rank < p.FirstRank+p.Ranks; rank++ {
					if j.ranks[rank] {
						_ = c.Process.Signal(s) // it may just have ended
						break
					}
				}
			}
			j.mu.Unlock()
		}
	}
}
