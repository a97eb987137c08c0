package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// writeStatus writes the status if it has changed, against the version that it
// was made from: on a conflict the job is looked at again.
func (r *Reconciler) writeStatus(ctx context.Context, job *v1alpha1.MPIJob, status *v1alpha1.MPIJobStatus) error {
	if equality.Semantic.DeepEqual(&job.Status, status) {
		return nil
	}
	before := trueCondition(&job.Status)
	updated := job.DeepCopy()
	updated.Status = *status
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, updated, patch, client.FieldOwner(fieldOwner)); err != nil {
		return client.IgnoreNotFound(err)
	}
	if c := trueCondition(status); c != nil && (before == nil || before.Type != c.Type) {
		r.announce(job, c)
		r.Metrics.changed(job, c.Type, c.Reason, r.Now())
	}
	return nil
}

func trueCondition(s *v1alpha1.MPIJobStatus) *metav1.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Status == metav1.ConditionTrue {
			return meta.FindStatusCondition(s.Conditions, s.Conditions[i].Type)
		}
	}
	return nil
}

// announce makes an Event of a new state.
func (r *Reconciler) announce(job *v1alpha1.MPIJob, c *metav1.Condition) {
	kind := corev1.EventTypeNormal
	if c.Type == v1alpha1.ConditionFailed || c.Type == v1alpha1.ConditionRestarting {
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(job, nil, kind, c.Type, "UpdateStatus", "%s: %s", c.Reason, c.Message)
}
