package jobrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// consultTime bounds the questions to the sidecars of a failed job.
const consultTime = time.Second

// hearTime bounds the wait for a launcher's word on how the guilty rank ended:
// its sidecar may know of its end first.
const hearTime = 2 * time.Second

// consult asks the sidecars whether the job failed, and why. A rank that aborts
// the job or is expelled makes others fail, who may be the first to exit: their
// launcher knows only that. And ranks that all end with 0 may have failed.
//
// All of them may wait for a processor for longer than anybody wants to wait for them:
// who has not been heard by then is heard at the job's end (hearLastWords).
func (j *Job) consult(ctx context.Context) {
	agreed := j.ask(ctx)
	j.blame(agreed)
	for end := time.Now().Add(hearTime); ctx.Err() == nil && j.unheard() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	j.blame(agreed)
	j.agreed = agreed
}

// ask gets what each sidecar knows of a failure, from all at once: one that does
// not answer costs no more time than one that does. Of that one, what it has written
// down is read.
func (j *Job) ask(ctx context.Context) map[int]*podlife.Message {
	ctx, cancel := context.WithTimeout(ctx, consultTime)
	defer cancel()
	agreed := map[int]*podlife.Message{}
	var mu sync.Mutex // guards agreed
	var wg sync.WaitGroup
	for pod, socket := range j.Metrics() {
		stopped := j.stopped(pod) // it cannot answer
		wg.Go(func() {
			var m *podlife.Message
			r, err := (*obs.Report)(nil), error(nil)
			if !stopped {
				r, err = FetchReport(ctx, socket)
			}
			switch {
			case stopped || err != nil:
				m = lastWords(j.layout.words(pod))
			case r.Failure != nil:
				m = &podlife.Message{Kind: podlife.KindSidecar, Pod: pod, Failures: []podlife.Failure{r.Failure.Words()}}
			}
			if m != nil {
				mu.Lock()
				defer mu.Unlock()
				agreed[pod] = m
			}
		})
	}
	wg.Wait()
	return agreed
}

// unheard reports that a rank is to blame whose process has ended, as its
// sidecar knows, and of which its launcher has not told yet how. Or that ranks have
// failed because their sidecar had ended, and nobody knows yet how that one did: the
// kernel gives its memory back first.
func (j *Job) unheard() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for pod, t := range j.gone {
		if !t.IsZero() && j.stories[pod].Daemon == nil {
			return true
		}
	}
	return j.first != nil && j.first.Verdict != nil && j.first.Verdict.Reason == podlife.RankVanished && j.ranks[j.first.Verdict.Rank]
}

// hearLastWords blames who the sidecars' last words name, where they were not heard
// before. All sidecars have ended: they have seen the end of every rank by then, which
// may come later than the rank's exit code; and all that launchers have to say was read.
func (j *Job) hearLastWords() {
	agreed := map[int]*podlife.Message{}
	for pod := range j.spec.Pods {
		if m := lastWords(j.layout.words(pod)); m != nil && ofRank(m.Failures[0]) {
			agreed[pod] = m
		}
	}
	maps.Copy(agreed, j.agreed)
	if len(agreed) > 0 || j.failure() != nil {
		j.blame(agreed)
	}
}

// ofRank reports that a sidecar's last words are about a rank. What else it may
// say at the end is about itself, and too late for ranks that have ended well, or is what
// it was told (tellEnd).
func ofRank(f podlife.Failure) bool {
	if strings.HasPrefix(f.Text, podlife.TextEnded) {
		return false
	}
	switch f.Reason {
	case podlife.RankVanished, podlife.RankExpelled, podlife.JobAborted, podlife.RanksDisagree, podlife.JobFailed:
		return true
	}
	return false
}

// blame makes the failure that the others followed from the job's.
func (j *Job) blame(agreed map[int]*podlife.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	reports := slices.Clone(j.stories)
	for pod := range reports {
		r := &reports[pod]
		if agreed[pod] != nil { // else what it left when it ended
			r.Sidecar = agreed[pod]
		}
		if t := j.gone[pod]; r.Daemon != nil && !t.IsZero() && t.Before(r.Daemon.Time) {
			sooner := *r.Daemon
			sooner.Time = t
			r.Daemon = &sooner
		}
	}
	v := podlife.Blame(reports)
	if v == nil {
		return // something else failed
	}
	j.first = &Failure{Text: v.String(), Code: v.Code, Verdict: v}
	s := &j.stories[max(v.Pod, 0)]
	if e := s.Daemon; e != nil && (v.Reason == podlife.SidecarLost || v.Reason == podlife.SidecarFailed) {
		j.first.Text, j.first.Code = e.Text, 1
	}
	if e := s.Application; e != nil && e.Text == v.Text { // it was the launcher, and no rank
		j.first.Text, j.first.Code = e.Text, 1
	}
	j.first = j.withDispute(j.first)
}

// heard notes a rank's failure. gone says that the sidecar of its pod has ended
// by now: ranks that fail because of that may be heard of before it is, and must
// not seem to have failed first.
func (j *Job) heard(pod int, f podlife.Failure, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &j.stories[pod]
	if gone && !j.dismissed && (j.gone[pod].IsZero() || f.Time.Before(j.gone[pod])) {
		j.gone[pod] = f.Time
	}
	if s.Launcher == nil {
		s.Launcher = &podlife.Message{Kind: podlife.KindRanks, Pod: pod}
	}
	s.Launcher.Failures = append(s.Launcher.Failures, f)
}

// hasEnded reports whether a child of this process has ended, whether it was
// waited for or not. One that is ending counts, too: the kernel closes its sockets,
// which its ranks notice, and then gives hundreds of megabytes of arenas back before
// anybody can wait for it.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD) || err == nil && info.Signo == int32(unix.SIGCHLD) || isEnding(pid)
}

// isEnding reports whether the first thread of a process has begun to end, as all of
// its threads have when its files are closed (proc_pid_stat(5), flags; PF_EXITING).
func isEnding(pid int) bool {
	const exiting, flagsAt = 0x4, 6 // behind the name, which is in parentheses
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // waitid knows as much
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= flagsAt {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[flagsAt]), 10, 64)
	return err == nil && flags&exiting != 0
}

// endingOf is how a process ended, for podlife.
func endingOf(err error, text string) *podlife.Ending {
	e := &podlife.Ending{Text: text, Time: time.Now()}
	var x *exec.ExitError
	switch {
	case errors.As(err, &x):
		ws, ok := x.Sys().(syscall.WaitStatus)
		if e.Code = x.ExitCode(); ok && ws.Signaled() {
			e.Code = 128 + int(ws.Signal())
		}
	case err != nil:
		e.Code = 1
	}
	return e
}
