package webhook

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// confirmedFor is how long an MPIJob that was read from the API server counts as the
// present one of its name, so that a job of thousands of pods costs one read in that
// time, and not one per pod.
const confirmedFor = time.Second

// confirmed caches MPIJobs that were read from the API server a short time ago.
type confirmed struct {
	mu   sync.Mutex // guards jobs
	jobs map[client.ObjectKey]confirmation
}

type confirmation struct {
	uid   types.UID
	at    time.Time
	read  bool   // the job document has been read
	peers string // peers of the document (desired.PeersOf)

	bounds *inject.Bounds // bounds of the namespace; nil: not read
	users  *inject.UIDs   // user ids of the namespace; nil: not read
}

// peers returns what the job document of a confirmed job says, if it was read.
func (c *confirmed) peers(key client.ObjectKey, uid types.UID) (peers string, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[key]
	return j.peers, j.uid == uid && j.read
}

// notePeers stores peers for as long as the job counts as confirmed.
func (c *confirmed) notePeers(key client.ObjectKey, uid types.UID, peers string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j, ok := c.jobs[key]; ok && j.uid == uid {
		j.peers, j.read = peers, true
		c.jobs[key] = j
	}
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
	c.jobs[key] = confirmation{uid: uid, at: now}
}

// jobOf returns the MPIJob with the given name. The cache may have none yet, or an
// earlier one that was deleted. A pod that joined the earlier job would wait for a
// document that is never made, and would not count as a pod of the present job.
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

// boundsOf returns the bounds of containers in the namespace of a confirmed job. They
// are read once per confirmation.
func (h *Pods) boundsOf(ctx context.Context, job *v1alpha1.MPIJob) inject.Bounds {
	key, c := client.ObjectKeyFromObject(job), &h.confirmed
	c.mu.Lock()
	known := c.jobs[key]
	c.mu.Unlock()
	switch {
	case h.LimitsOf == nil:
		return inject.Bounds{}
	case known.uid == job.UID && known.bounds != nil:
		return *known.bounds
	}
	bounds := inject.BoundsOf(h.LimitsOf(ctx, job.Namespace))
	c.mu.Lock()
	defer c.mu.Unlock()
	if j, ok := c.jobs[key]; ok && j.uid == job.UID {
		j.bounds = &bounds
		c.jobs[key] = j
	}
	return bounds
}

// usersOf returns the user ids that the namespace of a confirmed job allows. They are
// read once per confirmation.
func (h *Pods) usersOf(ctx context.Context, job *v1alpha1.MPIJob) (inject.UIDs, error) {
	key, c := client.ObjectKeyFromObject(job), &h.confirmed
	c.mu.Lock()
	known := c.jobs[key]
	c.mu.Unlock()
	switch {
	case h.UsersOf == nil:
		return inject.UIDs{}, nil
	case known.uid == job.UID && known.users != nil:
		return *known.users, nil
	}
	users, err := h.UsersOf(ctx, job.Namespace)
	if err != nil {
		return inject.UIDs{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j, ok := c.jobs[key]; ok && j.uid == job.UID {
		j.users = &users
		c.jobs[key] = j
	}
	return users, nil
}

// peersOf returns how the pods of an attempt find each other, as in its job document,
// which an operator of another release may have made. It is empty if there is no
// document yet.
func (h *Pods) peersOf(ctx context.Context, a *desired.Attempt) (string, error) {
	key := client.ObjectKeyFromObject(a.Job)
	if peers, read := h.confirmed.peers(key, a.Job.UID); read {
		return peers, nil
	}
	document, peers := new(corev1.ConfigMap), ""
	switch err := h.Live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: a.DocumentName()}, document); {
	case err == nil:
		peers = desired.PeersOf(document)
	case !apierrors.IsNotFound(err):
		return "", err
	}
	h.confirmed.notePeers(key, a.Job.UID, peers)
	return peers, nil
}

func (h *Pods) now() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}
