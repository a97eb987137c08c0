package webhook

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// confirmedFor is how long an MPIJob that the API server has shown is that of its name:
// a job of thousands of pods costs one question in that time, and not one a pod.
const confirmedFor = time.Second

// confirmed are MPIJobs that the API server has shown a short time ago.
type confirmed struct {
	mu   sync.Mutex // guards jobs
	jobs map[client.ObjectKey]confirmation
}

type confirmation struct {
	uid types.UID
	at  time.Time
}

func (c *confirmed) is(key client.ObjectKey, uid types.UID, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, ok := c.jobs[key]
	return ok && j.uid == uid && now.Sub(j.at) < confirmedFor
}

func (c *confirmed) note(key client.ObjectKey, uid types.UID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.jobs, func(_ client.ObjectKey, j confirmation) bool { return now.Sub(j.at) >= confirmedFor })
	if c.jobs == nil {
		c.jobs = map[client.ObjectKey]confirmation{}
	}
	c.jobs[key] = confirmation{uid, now}
}

// jobOf finds the MPIJob of a name. The cache may have none yet, or an earlier one that was
// deleted: a pod that joined that one would wait for a document that nobody makes, and
// nobody would take it for one of the job's.
func (h *Pods) jobOf(ctx context.Context, key client.ObjectKey) (*v1alpha1.MPIJob, error) {
	job := new(v1alpha1.MPIJob)
	switch err := h.Client.Get(ctx, key, job); {
	case err == nil && h.confirmed.is(key, job.UID, h.now()):
		return job, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	}
	asked := h.now()
	job = new(v1alpha1.MPIJob)
	if err := h.Live.Get(ctx, key, job); err != nil {
		return nil, err
	}
	h.confirmed.note(key, job.UID, asked)
	return job, nil
}

func (h *Pods) now() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}
