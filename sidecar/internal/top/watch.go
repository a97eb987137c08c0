package top

import (
	"context"
	"sync"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

// Watcher looks at jobs again and again and remembers each sidecar's last look.
type Watcher struct {
	// Fetch gets a report from a metrics socket: jobrun.FetchReport.
	Fetch func(ctx context.Context, socket string) (*obs.Report, error)
	last  map[string]*Look // by socket
}

// Look looks at all sidecars of the jobs, at once, so that one that does not
// answer delays nobody's figures.
func (w *Watcher) Look(ctx context.Context, entries []jobrun.Entry) []Job {
	jobs := make([]Job, len(entries))
	looks := make([][]*Look, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		looks[i] = make([]*Look, len(e.Metrics))
		for pod, socket := range e.Metrics {
			wg.Go(func() { looks[i][pod] = w.fetch(ctx, socket) })
		}
	}
	wg.Wait()
	seen := map[string]*Look{} // what has ended is forgotten
	for i, e := range entries {
		jobs[i].Entry = e
		for pod, socket := range e.Metrics {
			jobs[i].Rows = append(jobs[i].Rows, Compare(pod, w.last[socket], looks[i][pod]))
			seen[socket] = looks[i][pod]
		}
	}
	w.last = seen
	return jobs
}

// patience is how long a sidecar may take to answer: one that is stopped must
// not stop the picture.
const patience = time.Second

func (w *Watcher) fetch(ctx context.Context, socket string) *Look {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := w.Fetch(ctx, socket)
	l := &Look{At: time.Now(), Err: err}
	if err == nil {
		l.Report = *r
	}
	return l
}
