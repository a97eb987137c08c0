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
	// nameAfter is the delay of the message with the cause before the ranks are killed:
	// most ranks end sooner, and the cause is then printed once, at the end.
	nameAfter = 300 * time.Millisecond
	// againPause is the interval of the signals to launchers after the grace.
	againPause = 20 * time.Millisecond
)

// watchKill watches for the request to end a job at once that is ending already: the second
// signal, or the first one if the job has failed by itself. It returns the context of the
// requests to sidecars meanwhile, and a function that ends the watch.
func (j *Job) watchKill(asked context.Context, o outcome) (ending context.Context, unwatch func()) {
	ending, cut := context.WithCancel(context.WithoutCancel(asked))
	first := asked.Done()
	if o != hasFailed || asked.Err() != nil { // the first signal ends the job, or came with its end
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

// awaitRanks waits for the end of the launchers, which have received SIGTERM: for the grace
// of their ranks, or, if the end is requested at once, for as long as it takes to kill the
// ranks.
func (j *Job) awaitRanks() {
	over, late, name := time.After(j.rankGrace), time.After(j.rankGrace+2*time.Second), time.After(nameAfter)
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
		case <-over: // a launcher may have a longer one
			over, again = nil, tick.C
		case <-now:
			now, again = nil, tick.C
		case <-again:
			j.stop(j.launches) // a second SIGTERM ends their grace
		}
	}
}

// nameFirst prints the cause of the end before ranks are killed for it.
func (j *Job) nameFirst() {
	if j.cause == nil {
		return
	}
	text := j.cause.Error()
	if f := (*Failure)(nil); errors.As(j.cause, &f) {
		text = f.Text
	}
	seconds := strconv.FormatFloat(j.rankGrace.Seconds(), 'g', -1, 64)
	j.err.OfferReserved(fmt.Sprintf("outrigger: the job ends: %s; ranks that have not ended are killed %s s after SIGTERM, by Ctrl-C at once\n", text, seconds))
}

// passOnNotices sends signals to the ranks by their launchers. A launcher whose ranks have
// not started is left out: its signal handler may not be installed yet.
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
