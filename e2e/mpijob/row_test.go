//go:build cluster && long

package mpijob

import (
	"flag"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// rowPods is the number of pods of each job of TestJobsInARow.
var rowPods = flag.Int("row-pods", 60, "pods of each job of TestJobsInARow")

// TestJobsInARow: jobs of many pods follow each other, and each starts and completes without a
// restart.
func TestJobsInARow(t *testing.T) {
	ns := restricted(t)
	for n := range 3 {
		j := example(ns, fmt.Sprintf("row-%d", n), "ring", "-rounds", "3")
		j.Spec.Ranks, j.Spec.RanksPerPod = int32(*rowPods), 1 //nolint:gosec // less than a node has
		j.Spec.Sidecar.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
		begin := time.Now()
		s := becomes(t, submit(t, j), v1alpha1.ConditionComplete).Status
		if *s.Ranks.Succeeded != j.Spec.Ranks || s.FirstFailure != nil || deref(s.Restarts) > 0 {
			t.Errorf("status %+v", s)
		}
		t.Logf("job %d of %d pods: %v", n, *rowPods, time.Since(begin).Round(time.Second))
	}
}
