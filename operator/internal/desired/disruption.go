package desired

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// DisruptionBudget returns a budget that forbids evictions of the job's pods, if the
// job asks for it; nil otherwise. The job cannot run with one pod less. The budget has
// minAvailable, since maxUnavailable needs a controller with the scale subresource,
// which a Job does not have.
func (a *Attempt) DisruptionBudget() *policyv1.PodDisruptionBudget {
	if a.Job.Spec.RunPolicy.Disruption != v1alpha1.DisruptionPrevented {
		return nil
	}
	all := intstr.FromInt32(a.Pods())
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: a.meta(a.Job.Name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all,
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{names.LabelJob: a.Job.Name}},
		},
	}
}
