package top

import (
	"context"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// Watcher samples jobs repeatedly and keeps each sidecar's last sample.
type Watcher struct {
	// Fetch gets a report from a metrics socket: jobrun.FetchReport.
	Fetch func(ctx context.Context, socket string) (*obs.Report, error)
	last  map[string]*Sample // the last sample of each metrics socket
}

// Sample samples all sidecars of the jobs concurrently, so that one that does not answer
// does not delay the others.
func (w *Watcher) Sample(ctx context.Context, entries []jobrun.Entry) []Job {
	jobs := make([]Job, len(entries))
	samples := make([][]*Sample, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		samples[i] = make([]*Sample, len(e.Metrics))
		for pod, socket := range e.Metrics {
			wg.Go(func() { samples[i][pod] = w.fetch(ctx, socket) })
		}
	}
	wg.Wait()
	seen := map[string]*Sample{} // sidecars that have ended are forgotten
	for i, e := range entries {
		jobs[i].Entry = e
		for pod, socket := range e.Metrics {
			jobs[i].Rows = append(jobs[i].Rows, Compare(pod, w.last[socket], samples[i][pod]))
			seen[socket] = samples[i][pod]
		}
	}
	w.last = seen
	return jobs
}

// answerTimeout bounds how long a sidecar may take to answer: one that is stopped must not
// stop the table.
const answerTimeout = time.Second

func (w *Watcher) fetch(ctx context.Context, socket string) *Sample {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := w.Fetch(ctx, socket)
	l := &Sample{At: time.Now(), Err: err}
	if err == nil {
		l.Report = *r
	}
	return l
}
