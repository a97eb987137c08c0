package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// transports asks one running pod which transports it uses, once all ranks run; earlier
// the pod may not know. Ended pods have reported them in their termination messages. A
// job of one pod uses none.
func (r *Reconciler) transports(ctx context.Context, o *verdict.Observation) []string {
	var found []string
	for _, p := range o.Pods {
		for _, t := range verdict.Traffic(p) {
			if t.Transport != "local" && !slices.Contains(found, t.Transport) {
				found = append(found, t.Transport)
			}
		}
	}
	running := meta.IsStatusConditionTrue(o.Job.Status.Conditions, v1alpha1.ConditionRunning)
	if found == nil && r.Transports != nil && running && o.Job.Status.Transports == nil && desired.Pods(&o.Job.Spec) > 1 {
		for _, p := range o.Pods {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				found = r.Transports.InUse(ctx, p)
				break
			}
		}
	}
	slices.Sort(found)
	return found
}
