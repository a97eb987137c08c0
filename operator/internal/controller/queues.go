package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// workloads is the kind that Kueue makes for the Jobs that it manages.
var workloads = schema.GroupKind{Group: "kueue.x-k8s.io", Kind: "Workload"}

// queuesKnown is the time for which a result is used: each check takes calls to the API
// server.
const queuesKnown = time.Minute

// queues caches whether the cluster has Kueue.
type queues struct {
	mu      sync.Mutex // guards the fields below
	asked   time.Time
	missing bool
}

// unqueued reports whether a job names a queue of Kueue in a cluster without Kueue. If
// the API server does not answer, Kueue is assumed to exist.
func (r *Reconciler) unqueued(job *v1alpha1.MPIJob) bool {
	if job.Labels[desired.LabelQueue] == "" || verdict.Finished(&job.Status) {
		return false
	}
	q := &r.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := r.Now(); q.asked.IsZero() || now.Sub(q.asked).Abs() >= queuesKnown {
		_, err := r.Client.RESTMapper().RESTMapping(workloads)
		q.asked, q.missing = now, meta.IsNoMatchError(err)
	}
	return q.missing
}
