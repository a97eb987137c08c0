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

// consultTime bounds the requests to the sidecars of a failed job, so that a sidecar that
// does not answer does not delay the job's end.
const consultTime = time.Second

// hearTime bounds the wait for a launcher's report of how the failed rank ended: its
// sidecar may learn of the end first.
const hearTime = 2 * time.Second

// consult asks the sidecars whether the job has failed, and why. A rank that aborts the job
// or is expelled makes other ranks fail, which may exit first: their launcher knows only
// that. And a job may have failed although all ranks ended with code 0.
//
// The sidecars may wait for a CPU for longer than consult waits. Their reports are read at
// the job's end (readFinalMessages).
func (j *Job) consult(ctx context.Context) {
	agreed := j.queryFailures(ctx)
	j.blame(agreed)
	for end := time.Now().Add(hearTime); ctx.Err() == nil && j.awaitsReport() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	j.blame(agreed)
	j.agreed = agreed
}

// queryFailures gets from all sidecars concurrently what they know of a failure: a sidecar
// that does not answer costs no more time than one that does. For a sidecar that does not
// answer, it reads the message that the sidecar has written to its file.
func (j *Job) queryFailures(ctx context.Context) map[int]*podlife.Message {
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
				m = finalMessage(j.layout.words(pod))
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

// awaitsReport reports whether the rank that caused the failure has ended, as its sidecar
// reports, while its launcher has not reported how. It also reports true if ranks have
// failed because their sidecar had ended, and the exit of that sidecar is not known yet:
// the kernel frees the memory of a process before its parent can wait for it.
func (j *Job) awaitsReport() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for pod, t := range j.gone {
		if !t.IsZero() && j.reports[pod].Daemon == nil {
			return true
		}
	}
	return j.first != nil && j.first.Verdict != nil && j.first.Verdict.Reason == podlife.RankVanished && j.ranks[j.first.Verdict.Rank]
}

// readFinalMessages determines the cause again, with the final messages of sidecars that
// were not asked in time. All sidecars have ended: they have seen the end of every rank by
// then, which may come later than the rank's exit code; and all reports of launchers were
// read.
func (j *Job) readFinalMessages() {
	agreed := map[int]*podlife.Message{}
	for pod := range j.spec.Pods {
		if m := finalMessage(j.layout.words(pod)); m != nil && ofRank(m.Failures[0]) {
			agreed[pod] = m
		}
	}
	maps.Copy(agreed, j.agreed)
	if len(agreed) > 0 || j.failure() != nil {
		j.blame(agreed)
	}
}

// ofRank reports whether a sidecar's final message is about a rank. Other final messages
// are about the sidecar itself, and too late for ranks that have ended with code 0, or
// repeat what this process has sent (notifyEnd).
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

// blame makes the failure that caused the others the job's.
func (j *Job) blame(agreed map[int]*podlife.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := slices.Clone(j.reports)
	for pod := range all {
		r := &all[pod]
		if agreed[pod] != nil { // otherwise the message that it left when it ended
			r.Sidecar = agreed[pod]
		}
		if t := j.gone[pod]; r.Daemon != nil && !t.IsZero() && t.Before(r.Daemon.Time) {
			sooner := *r.Daemon
			sooner.Time = t
			r.Daemon = &sooner
		}
	}
	v := podlife.Blame(all)
	if v == nil { // no process of the job has failed
		return // something else failed
	}
	j.first = &Failure{Text: v.String(), Code: v.Code, Verdict: v}
	s := &j.reports[max(v.Pod, 0)]
	if e := s.Daemon; e != nil && (v.Reason == podlife.SidecarLost || v.Reason == podlife.SidecarFailed) {
		j.first.Text, j.first.Code = e.Text, 1
	}
	if e := s.Application; e != nil && e.Text == v.Text { // the launcher failed, and no rank
		j.first.Text, j.first.Code = e.Text, 1
	}
	j.first = j.withDispute(j.first)
}

// recordFailure records a rank's failure. gone means that the sidecar of its pod has ended
// by now: ranks that fail because of that may be reported before the end of the sidecar,
// and must not seem to have failed first.
func (j *Job) recordFailure(pod int, f podlife.Failure, gone bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &j.reports[pod]
	if gone && !j.sidecarsStopped && (j.gone[pod].IsZero() || f.Time.Before(j.gone[pod])) {
		j.gone[pod] = f.Time
	}
	if s.Launcher == nil {
		s.Launcher = &podlife.Message{Kind: podlife.KindRanks, Pod: pod}
	}
	s.Launcher.Failures = append(s.Launcher.Failures, f)
}

// hasEnded reports whether a child of this process has ended, whether it was waited for or
// not. A child that is ending counts, too: the kernel closes its sockets, which its ranks
// notice, and then frees hundreds of megabytes of arenas before its parent can wait for it.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD) || err == nil && info.Signo == int32(unix.SIGCHLD) || isEnding(pid)
}

// isEnding reports whether the first thread of a process has begun to exit, as all of its
// threads have when its files are closed (proc_pid_stat(5), flags; PF_EXITING).
func isEnding(pid int) bool {
	const exiting, flagsAt = 0x4, 6 // index of flags after the name, which is in parentheses
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // waitid has the same result
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= flagsAt {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[flagsAt]), 10, 64)
	return err == nil && flags&exiting != 0
}

// endingOf describes for podlife how a process ended.
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
