package controller

import (
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestRefusedSidecarIsNamed: the API server names a container by its index among the
// pod's init containers, some of which are the user's.
func TestRefusedSidecarIsNamed(t *testing.T) {
	job := new(batchv1.Job)
	for _, name := range []string{names.ContainerInstall, names.ContainerSidecar, "stage-in"} {
		job.Spec.Template.Spec.InitContainers = append(job.Spec.Template.Spec.InitContainers, corev1.Container{Name: name})
	}
	const refusal = ` is invalid: spec.template.spec.initContainers[%].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 100m`
	for place, want := range map[string]string{"0": "container outrigger-install, whose requests and limits are sidecar.resources", "1": "container outrigger, whose", "2": "", "11": ""} {
		err := ofSidecar(&permanent{v1alpha1.ReasonInvalid, errors.New(strings.ReplaceAll(refusal, "%", place)), false}, job)
		if p := new(permanent); !errors.As(err, &p) || p.reason != v1alpha1.ReasonInvalid || strings.Contains(err.Error(), "sidecar.resources") != (want != "") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", place, err)
		}
	}
	passing := errors.New("initContainers[1].resources")
	if err := ofSidecar(passing, job); err != passing { //nolint:errorlint // the same error value
		t.Error(err)
	}
	if ofSidecar(nil, job) != nil {
		t.Error("an error of nothing")
	}
}
