package jobrun

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/podlife"
)

// A sidecar whose process is stopped looks alive to every process but its peers, which
// notice it only if they need it. This process is its parent and can check its state.

// Times of the watch for stopped sidecars.
const (
	stoppedPause = 100 * time.Millisecond
	stoppedMax   = 3 * time.Second // default of DeadAfter: less than a peer waits, which does not know that the process is stopped
)

// isStopped reports whether a child of this process is stopped by a signal.
func isStopped(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// watchStopped fails the job if a sidecar has been stopped for too long.
func (j *Job) watchStopped() {
	limit := stoppedMax
	if d := time.Duration(j.layout.doc.Tuning.DeadAfter); d > 0 {
		limit = d
	}
	for {
		for pod := range j.sidecars {
			if since := j.stoppedSince(pod); !since.IsZero() && time.Since(since) >= limit {
				j.fail(&Failure{Text: j.stoppedText(pod, since), Code: 1}, since)
				return
			}
		}
		select {
		case <-j.over:
			return
		case <-time.After(stoppedPause):
		}
	}
}

// stoppedSince checks, and returns since when a pod's sidecar is stopped, or the zero time
// if it is not.
func (j *Job) stoppedSince(pod int) time.Time {
	stopped := isStopped(j.sidecars[pod].Process.Pid)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case !stopped:
		j.halted[pod] = time.Time{}
	case j.halted[pod].IsZero():
		j.halted[pod] = time.Now()
	}
	return j.halted[pod]
}

// stopped reports whether a pod's sidecar is stopped now, and records that as its end: if
// the job has failed, it has failed because of that, since the sidecar can have reported
// nothing else.
func (j *Job) stopped(pod int) bool {
	since := j.stoppedSince(pod)
	if since.IsZero() {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s := &j.reports[pod]; s.Daemon == nil {
		s.Daemon = &podlife.Ending{Code: 1, Text: j.stoppedText(pod, since), Time: since}
	}
	return true
}

func (j *Job) stoppedText(pod int, since time.Time) string {
	p := j.layout.doc.Pods[pod]
	return fmt.Sprintf(podlife.TextLost+"%d (%s) is lost: its process %d has been stopped for %v (SIGSTOP)",
		pod, podlife.RankRange(p.FirstRank, p.FirstRank+p.Ranks-1), j.sidecars[pod].Process.Pid, time.Since(since).Round(100*time.Millisecond))
}
