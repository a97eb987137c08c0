package jobrun

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// passOnNotices sends signals to the ranks by their launchers. A signal concerns the ranks
// that have been started before it came.
func (j *Job) passOnNotices() {
	for {
		select {
		case <-j.over:
			return
		case s := <-j.spec.Notices:
			j.mu.Lock()
			n := notice{sig: s, at: time.Now()}
			for pod := range j.launches {
				if !j.sendNotice(pod, n) {
					j.notices[pod] = append(j.notices[pod], n)
				}
			}
			j.mu.Unlock()
		}
	}
}

// notice is a signal for the ranks, and the time at which it came.
type notice struct {
	sig os.Signal
	at  time.Time
}

// sendNotice sends a signal to a pod's launcher, and returns false if no rank of the pod is
// known to run: a launcher without ranks may have no signal handler yet.
// Precondition: j.mu is held.
func (j *Job) sendNotice(pod int, n notice) bool {
	p := j.layout.doc.Pods[pod]
	for rank := p.FirstRank; rank < p.FirstRank+p.Ranks; rank++ {
		if j.ranks[rank] {
			_ = j.launches[pod].Process.Signal(n.sig) // the launcher may just have ended
			return true
		}
	}
	return false
}

// sendEarlierNotices sends the signals that came after a rank of the pod was started and
// before the launcher's report of the start was read. Signals that came before the start are
// dropped, because the rank may not handle them yet.
// Precondition: j.mu is held.
func (j *Job) sendEarlierNotices(pod int, started time.Time) {
	for _, n := range j.notices[pod] {
		if !n.at.Before(started) {
			j.sendNotice(pod, n)
		}
	}
	delete(j.notices, pod)
}
