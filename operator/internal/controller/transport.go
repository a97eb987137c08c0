package controller

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// transports asks one running pod which transports it uses; the pods that have
// ended have left it in their termination messages.
func (r *Reconciler) transports(ctx context.Context, o *verdict.Observation) []string {
	var found []string
	for _, p := range o.Pods {
		for _, t := range verdict.Traffic(p) {
			if t.Transport != "local" && !slices.Contains(found, t.Transport) {
				found = append(found, t.Transport)
			}
		}
	}
	if found == nil && r.Transports != nil && o.Job.Status.Transports == nil {
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
