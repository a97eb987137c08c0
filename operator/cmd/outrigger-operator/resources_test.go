package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
)

// TestChartsResourcesReachThePods: the JSON that the chart makes of sidecar.resources
// (hack/helm TestSidecarResourcesArrive has the same text) sets the resources of the sidecar
// and of the init container of a job's pods. Without the value, the defaults apply.
func TestChartsResourcesReachThePods(t *testing.T) {
	for text, want := range map[string][2]string{ // requests and limits of CPU, of the init container and of the sidecar
		`{"limits":{"cpu":1},"requests":{"cpu":"300m"}}`: {"300m 300m", "300m 1"},
		`{"requests":{"cpu":"300m"}}`:                    {"300m 0", "300m 0"},
		"":                                               {"10m 0", "250m 0"},
	} {
		o := &options{sidecar: text}
		o.desired.Image = "outrigger.dev/outrigger-sidecar:1"
		if err := o.describe(); err != nil {
			t.Fatal(err)
		}
		j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Name: "cg", Namespace: "hpc", UID: "1"}}
		j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.LaunchMode = 2, 1, v1alpha1.LaunchProcesses
		j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "cg", Command: []string{"cg"}}}
		a := &desired.Attempt{Job: j, Options: o.desired}
		b, err := a.BatchJob()
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i, name := range []string{names.ContainerInstall, names.ContainerSidecar} {
			for _, c := range b.Spec.Template.Spec.InitContainers {
				if c.Name != name {
					continue
				}
				found++
				if got := c.Resources.Requests.Cpu().String() + " " + c.Resources.Limits.Cpu().String(); got != want[i] {
					t.Errorf("%s: %s requests and is limited to %s CPU, want %s", text, name, got, want[i])
				}
			}
		}
		if found != 2 {
			t.Errorf("%d containers of ours", found)
		}
	}
}
