package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// writeStatus writes the plan's status if it differs from the job's, under the
// condition that the job has not changed since. If only counts and messages differ, at
// most one write is made per pace; plan.Requeue is set for the rest.
func (r *Reconciler) writeStatus(ctx context.Context, job *v1alpha1.MPIJob, plan *verdict.Plan) error {
	status := &plan.Status
	if equality.Semantic.DeepEqual(&job.Status, status) {
		if verdict.Finished(status) {
			r.recent.forget(client.ObjectKeyFromObject(job))
		}
		return nil
	}
	before := trueCondition(&job.Status)
	if wait := r.recent.wait(job, r.Now()); wait > 0 && !important(&job.Status, status) {
		if plan.Requeue == 0 || wait < plan.Requeue {
			plan.Requeue = wait
		}
		return nil
	}
	updated := job.DeepCopy()
	updated.Status = *status
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	began := r.Now()
	if left, cause := r.recent.trouble(job, statusWrite, began); left > 0 {
		return &unwritten{left, cause}
	}
	err := r.write(ctx, "patch status", func(ctx context.Context) error {
		return r.Client.Status().Patch(ctx, updated, patch, client.FieldOwner(fieldOwner))
	})
	if err != nil {
		return r.unwritten(ctx, job, err, began)
	}
	r.recent.went(job, statusWrite)
	if updated.ResourceVersion != job.ResourceVersion {
		r.recent.note(job, r.Now())
	}
	c := trueCondition(status)
	if c == nil {
		return nil
	}
	state := before == nil || before.Type != c.Type
	if state || before.Reason != c.Reason && slices.Contains(obstacles, c.Reason) {
		r.announce(job, c)
	}
	if state {
		log.FromContext(ctx).Info("the state of a job has changed", "state", c.Type, "reason", c.Reason, "message", note(c.Message))
		r.Metrics.changed(job, status, c.Type, c.Reason, r.Now())
	}
	return nil
}

// unwritten returns the error for a status that was not written. A conflict or a
// deleted job is reported by the watch. For another answer of the API server, the write
// is tried again with exponential back-off.
func (r *Reconciler) unwritten(ctx context.Context, job *v1alpha1.MPIJob, err error, began time.Time) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || !errors.As(err, new(apierrors.APIStatus)) {
		return client.IgnoreNotFound(err) // the work queue repeats errors that are not answers of the API server
	}
	now := r.Now()
	r.recent.failed(job, statusWrite, err, now.Sub(began), now)
	left, _ := r.recent.trouble(job, statusWrite, now)
	log.FromContext(ctx).Error(err, "the status of a job cannot be written", "again", left)
	return &unwritten{left, err}
}

// obstacles are the reasons of Pending and Running that require an action by a user or
// an administrator.
var obstacles = []string{
	v1alpha1.ReasonUnschedulable, v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonContainerWaiting, v1alpha1.ReasonSchedulingGated,
	v1alpha1.ReasonPodsMissing, v1alpha1.ReasonPodRejected, v1alpha1.ReasonProfileMissing, v1alpha1.ReasonNameConflict,
	v1alpha1.ReasonInvalid, v1alpha1.ReasonAPIError, v1alpha1.ReasonSuspectedDeadlock, string(podlife.RanksDisagree),
}

// important reports whether a status has changes other than counts, messages and the
// reason of an unchanged state.
func important(was, is *v1alpha1.MPIJobStatus) bool {
	a, b := trueCondition(was), trueCondition(is)
	state := a == nil || b == nil || a.Type != b.Type
	return state || was.JobName != is.JobName || !was.StartTime.Equal(is.StartTime) || was.ObservedGeneration != is.ObservedGeneration ||
		!equality.Semantic.DeepEqual(was.FirstFailure, is.FirstFailure)
}

func trueCondition(s *v1alpha1.MPIJobStatus) *metav1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Status == metav1.ConditionTrue {
			return meta.FindStatusCondition(s.Conditions, s.Conditions[i].Type)
		}
	}
	return nil
}

// announce makes an Event for a new state.
func (r *Reconciler) announce(job *v1alpha1.MPIJob, c *metav1.Condition) {
	if c.Reason == "Created" {
		return // apply has made this Event
	}
	kind := corev1.EventTypeNormal
	if c.Type == v1alpha1.ConditionFailed || c.Type == v1alpha1.ConditionRestarting || slices.Contains(obstacles, c.Reason) {
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(job, nil, kind, c.Type, "UpdateStatus", "%s", note(c.Reason+": "+c.Message))
}

// noteMax is the maximum length of an Event's text (events.k8s.io/v1), in bytes. The
// API server refuses a longer one, and the Event is lost. Conditions may be longer.
const noteMax = 1024

func note(text string) string {
	if len(text) <= noteMax {
		return text
	}
	const more = "..."
	return strings.ToValidUTF8(text[:noteMax-len(more)], "") + more
}
