//go:build cluster

package mpijob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// none returns an error if a job still has running pods.
func none(t *testing.T, j *v1alpha1.MPIJob) error {
	pods := new(corev1.PodList)
	if err := api.List(t.Context(), pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name}); err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("pod %s of job %s is %s", p.Name, j.Name, p.Status.Phase)
		}
	}
	return nil
}

// saying returns an error unless a condition of the job is True with a reason and a text in
// its message.
func saying(t *testing.T, j *v1alpha1.MPIJob, condition, reason, word string) error {
	now := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), now); err != nil {
		return err
	}
	for _, c := range now.Status.Conditions {
		if c.Type == condition && c.Status == metav1.ConditionTrue && c.Reason == reason && strings.Contains(c.Message, word) {
			return nil
		}
	}
	return fmt.Errorf("no condition %s says %s for %s: %+v", condition, word, reason, now.Status.Conditions)
}
