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

// Time between two checks of a job's Service: while the pods start and look each other
// up, and while all ranks run, since sidecars look up their peers again after a broken
// connection. Services are not watched, because the operator has no right to list the
// Services of others.
const (
	keepStarting = 30 * time.Second
	keepRunning  = 5 * time.Minute
)

// kept is the known state of the Service of a job's attempt.
type kept struct {
	uid     types.UID
	attempt int32
	peers   string    // how the pods find each other, from the job document (desired.PeersOf)
	next    time.Time // time of the next check
}

// keepService checks from time to time that the Service of a job with pods exists and
// selects them. If the Service is deleted or merged with another one of its name, the
// pods cannot look each other up. It returns the time to the next check; 0: none. A
// failed repair is tried again then. It does not change the job's state, because its
// pods may have connected long ago.
func (r *Reconciler) keepService(ctx context.Context, o *verdict.Observation, a *desired.Attempt) time.Duration {
	next, err := r.putBack(ctx, o, a)
	if err != nil && !apierrors.IsConflict(err) {
		log.FromContext(ctx).Info("the Service of a job cannot be put back", "cause", err.Error(), "again", next)
		if p := new(permanent); errors.As(err, &p) {
			r.Events.Eventf(a.Job, nil, corev1.EventTypeWarning, reasonChangeRefused, "KeepService", "%s", note("pods of the job may not find each other: "+p.Error()))
		}
	}
	return next
}

// putBack checks the Service, repairs it, and returns the time to the next check.
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
			return pace, nil // the existing pods have already read a document
		}
		r.recent.setService(a.Job, k)
	}
	with := *a
	if with.Peers = k.peers; !with.Named() {
		return 0, nil
	}
	// The Service is read before it is made: a create call against an exhausted quota
	// is refused even if the Service exists.
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
