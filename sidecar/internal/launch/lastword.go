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

// What the pod leaves behind in its termination message.

// Failure is e as the termination message has it.
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

// running is a rank's process that was not taken away yet.
type running struct {
	*os.Process
	orders *orders // what it had been told when it ended; nil: it runs, as far as anybody has looked
	aborts int     // the exit code with which it has asked for the end of the job; 0: it has not
	lost   bool    // the job has failed because of it, and it was told to end
}

// orders are what ranks have been told by the end of the pod.
type orders struct {
	signal syscall.Signal // 0: none was sent
	end    bool           // from outside
	aborts int            // it has asked for the end itself, with that code
	lost   bool           // the job had failed because of it
}

// noteEnded keeps what ranks had been told that have ended by now. Their own goroutines
// may come to it only after more was said, and would take their end for obedience.
// p.mu is held.
func (p *pod) noteEnded() {
	for _, proc := range p.procs {
		if hasEnded(proc.Pid) {
			p.noteOrders(proc)
		}
	}
}

// noteOrders keeps what a rank has been told that has ended, the first time. p.mu is held.
func (p *pod) noteOrders(proc *running) {
	if proc.orders == nil {
		proc.orders = &orders{signal: p.ending, end: p.told, aborts: proc.aborts, lost: proc.lost}
	}
}

// hasEnded reports whether a child has ended, and leaves it there.
func hasEnded(pid int) bool {
	var ended siginfo
	err := unix.Waitid(unix.P_PID, pid, ended.info(), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && ended.pid() == pid
}

// sent reports whether the end of the pod had sent s: SIGTERM comes first, SIGKILL after
// the grace.
func (o *orders) sent(s syscall.Signal) bool {
	return o.signal != 0 && (s == unix.SIGTERM || s == o.signal)
}

// remember keeps the failures that are worth a word: in order of time, those
// that nobody asked for first. p.mu is held.
func (p *pod) remember(e *Event) {
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

// concludeTime bounds how long the end of a pod waits for its sidecar's word.
const concludeTime = 2 * time.Second

// conclude notes what the sidecar knows of the job when all ranks of the pod have ended
// with code 0: where containers of others keep the pod running, the sidecar does not leave
// its own last words before the job is over.
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
		return // no word is none of a good end
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outcome = podlife.OutcomeClosed; failed {
		p.outcome = podlife.OutcomeFailed
	}
}

// leaveWord writes the termination message as it stands.
func (p *pod) leaveWord() {
	p.mu.Lock()
	m := podlife.Message{Kind: podlife.KindRanks, Pod: p.cfg.Pod, Failures: slices.Clone(p.failures), Outcome: p.outcome}
	p.mu.Unlock()
	if len(m.Failures) > 0 {
		m.Output = p.tail.String()
	}
	if err := p.cfg.Log.Write(&m); err != nil {
		p.err.Tell(fmt.Sprintln("outrigger-launch:", err)) // the job goes on without it
	}
}
