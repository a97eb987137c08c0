package launch

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// What the pod leaves behind in its termination message.

// Failure is e as the termination message has it.
func (e *Event) Failure() podlife.Failure {
	f := podlife.Failure{Rank: e.Rank, Code: e.Code, Signal: e.Signal, Reason: podlife.RankExited, Text: e.Text(), Time: e.Time}
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

// sent reports whether the end of the pod sent s to the ranks: SIGTERM comes
// first, SIGKILL after the grace.
func (p *pod) sent(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending != 0 && (s == unix.SIGTERM || s == p.ending)
}

func (p *pod) toldToEnd() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told
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

// leaveWord writes the termination message as it stands.
func (p *pod) leaveWord() {
	p.mu.Lock()
	m := podlife.Message{Kind: podlife.KindRanks, Pod: p.cfg.Pod, Failures: slices.Clone(p.failures)}
	p.mu.Unlock()
	if err := p.cfg.Log.Write(&m); err != nil {
		p.err.Tell(fmt.Sprintln("outrigger-launch:", err)) // the job goes on without it
	}
}
