package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// Time between two looks at the Service of a job: while its pods start and look for each
// other, and while all ranks run, whose sidecars connect again after a break. Services are
// not watched: those of others stay unseen.
const (
	keepStarting = 30 * time.Second
	keepRunning  = 5 * time.Minute
)

// kept is what is known of the Service of a job's attempt.
type kept struct {
	uid     types.UID
	attempt int32
	peers   string    // of the job document (desired.PeersOf)
	next    time.Time // look
}

// keep sees from time to time that the Service of a job with pods is there and selects
// them: one that is merged with another one of its name, or deleted, hides the pods from each
// other. It returns the time to the next look; 0: there is none. What cannot be put back is
// tried again then, and changes nothing of what the job's state says: its pods may have found
// each other long ago.
func (r *Reconciler) keep(ctx context.Context, o *verdict.Observation, a *desired.Attempt) time.Duration {
	next, err := r.putBack(ctx, o, a)
	if err != nil && !apierrors.IsConflict(err) {
		log.FromContext(ctx).Info("the Service of a job cannot be put back", "cause", err.Error(), "again", next)
		if p := new(permanent); errors.As(err, &p) {
			r.Events.Eventf(a.Job, nil, corev1.EventTypeWarning, reasonChangeRefused, "KeepService", "%s", note("pods of the job may not find each other: "+p.Error()))
		}
	}
	return next
}

// putBack does what keep says.
func (r *Reconciler) putBack(ctx context.Context, o *verdict.Observation, a *desired.Attempt) (time.Duration, error) {
	managed := o.Batch != nil && o.Batch.DeletionTimestamp == nil && !verdict.Held(o) && !verdict.Over(o.Batch)
	external := a.Job.Spec.PodManagement == v1alpha1.PodsExternal && len(o.Pods) > 0
	if !managed && !external {
		return 0, nil
	}
	pace := keepStarting
	if meta.IsStatusConditionTrue(a.Job.Status.Conditions, v1alpha1.ConditionRunning) {
		pace = keepRunning
	}
	k, left := r.recent.keeps(a.Job, a.Number, pace, o.Now)
	switch {
	case k.peers == desired.ByIssuer:
		return 0, nil
	case left > 0:
		return left, nil
	case k.peers == "":
		document := new(corev1.ConfigMap)
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: a.Job.Namespace, Name: a.DocumentName()}, document)
		if err != nil && !apierrors.IsNotFound(err) {
			return pace, err
		}
		if k.peers = desired.PeersOf(document); k.peers == "" {
			return pace, nil // the pods that are there have read one
		}
		r.recent.keep(a.Job, k)
	}
	with := *a
	if with.Peers = k.peers; !with.Named() {
		return 0, nil
	}
	// It is read first: a quota that is used up refuses to make it, whether it is there or not.
	service := new(corev1.Service)
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(with.Service()), service); {
	case apierrors.IsNotFound(err):
		return pace, r.service(ctx, &with)
	case err != nil:
		return pace, err
	case !owned(service, a.Job):
		return pace, conflict("Service", service, a.Job)
	}
	return pace, r.selects(ctx, service, &with)
}
