package launch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// This file writes the pod's termination message.

// Failure converts e for the termination message.
func (e *Event) Failure() podlife.Failure {
	f := podlife.Failure{Rank: e.Rank, Code: e.Code, Signal: e.Signal, Reason: podlife.RankExited, Text: e.Text(), Clue: e.Clue, Time: e.Time}
	switch {
	case e.Told:
		f.Reason = podlife.Terminated
	case e.Judged:
	case e.Reason != "":
		f.Reason = podlife.CannotStart
	case e.Signal != "":
		f.Reason = podlife.RankKilled
	}
	return f
}

// running is a rank's process that was not reaped yet.
type running struct {
	*os.Process
	orders *orders // orders that the rank had received when its end was noticed; nil while the process runs
	aborts int     // exit code with which the rank has called abort; 0: the rank has not
	lost   bool    // the job has failed because of the rank, and abort has told the rank to end
}

// orders are the signals and requests that a rank had received when it ended.
type orders struct {
	signal syscall.Signal // signal that the rank was sent because the pod ends; 0: none
	end    bool           // the pod was told to end from outside
	aborts int            // as in running
	lost   bool           // as in running
}

// noteEnded records the orders of ranks that have ended by now. Their goroutines may notice
// the end only after a further order, and would report that the rank has obeyed it. p.mu is
// held.
func (p *pod) noteEnded() {
	for _, proc := range p.procs {
		if hasEnded(proc.Pid) {
			p.noteOrders(proc)
		}
	}
}

// noteOrders records the orders of a rank that has ended, if that was not done before. p.mu
// is held.
func (p *pod) noteOrders(proc *running) {
	if proc.orders == nil {
		proc.orders = &orders{signal: p.ending, end: p.told, aborts: proc.aborts, lost: proc.lost}
	}
}

// hasEnded reports whether a child has ended, and does not reap it.
func hasEnded(pid int) bool {
	var ended siginfo
	err := unix.Waitid(unix.P_PID, pid, ended.info(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && ended.pid() == pid
}

// sent reports whether the rank received s because the pod ended: SIGTERM first, SIGKILL
// after the grace period.
func (o *orders) sent(s syscall.Signal) bool {
	return o.signal != 0 && (s == unix.SIGTERM || s == o.signal)
}

// addFailure keeps the first podlife.FailuresMax failures in order of time, with those of
// ranks that were told to end last. p.mu is held.
func (p *pod) addFailure(e *Event) {
	p.failures = append(p.failures, e.Failure())
	slices.SortStableFunc(p.failures, func(a, b podlife.Failure) int {
		if told := a.Reason == podlife.Terminated; told != (b.Reason == podlife.Terminated) {
			if told {
				return 1
			}
			return -1
		}
		return a.Time.Compare(b.Time)
	})
	p.failures = p.failures[:min(len(p.failures), podlife.FailuresMax)]
}

// concludeTime bounds the request to the sidecar at the end of a pod.
const concludeTime = 2 * time.Second

// conclude asks the sidecar whether the job has failed, if all ranks of the pod have ended
// with code 0. If other containers keep the pod running, the sidecar writes its own
// termination message only after the job is over.
func (p *pod) conclude(ctx context.Context) {
	p.mu.Lock()
	ended := p.first == nil
	p.mu.Unlock()
	if !ended || p.cfg.JobFailed == nil || p.cfg.Log == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeTime)
	defer cancel()
	failed, err := p.cfg.JobFailed(ctx)
	if err != nil {
		return // without an answer the outcome stays unknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outcome = podlife.OutcomeClosed; failed {
		p.outcome = podlife.OutcomeFailed
	}
}

// writeMessage writes the termination message with the failures so far.
func (p *pod) writeMessage() {
	p.mu.Lock()
	m := podlife.Message{Kind: podlife.KindRanks, Pod: p.cfg.Pod, Failures: slices.Clone(p.failures), Outcome: p.outcome}
	p.mu.Unlock()
	if len(m.Failures) > 0 {
		m.Output = p.tail.String()
	}
	if err := p.cfg.Log.Write(&m); err != nil {
		p.err.OfferReserved(fmt.Sprintln("outrigger-launch:", err)) // the job does not depend on the message
	}
}
