package jobrun

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// consultTime bounds the questions to the sidecars of a failed job.
const consultTime = time.Second

// consult asks the sidecars why the job failed. A rank that aborts the job or
// is expelled makes others fail, who may be the first to exit: their launcher
// knows only that.
func (j *Job) consult(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, consultTime)
	defer cancel()
	var first *obs.Failure
	for _, socket := range j.Metrics() {
		r, err := FetchReport(ctx, socket)
		if err != nil || r.Failure == nil {
			continue // it has ended, or knows nothing
		}
		if first == nil || r.Failure.Time.Before(first.Time) {
			first = r.Failure
		}
	}
	if first != nil && first.Rank < uint32(j.spec.Ranks) { // else no rank can be named
		j.blame(first)
	}
}

// vanished is how a sidecar's reason begins when a process was gone: how the
// process ended is its launcher's to say.
const vanished = "its process ended"

// blame makes what a sidecar saw the first failure, if it was before all that
// launchers saw, or is about the same rank.
func (j *Job) blame(f *obs.Failure) {
	j.mu.Lock()
	defer j.mu.Unlock()
	own := j.causes[f.Rank]
	if own != j.first && !f.Time.Before(j.firstAt) {
		return
	}
	switch {
	case strings.HasPrefix(f.Reason, vanished) && own != nil:
		j.first = own
	case own != nil:
		own.Text += ": " + f.Reason
		if f.Code > 1 { // chosen by an abort
			own.Code = int(f.Code)
		}
		j.first = own
	default:
		j.first = &Failure{Text: fmt.Sprintf("rank %d (pod %d) failed: %s", f.Rank, j.layout.doc.PodOf()[f.Rank], f.Reason), Code: max(int(f.Code), 1)}
	}
}
