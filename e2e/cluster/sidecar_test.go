//go:build cluster

package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// The features that Outrigger's pods need work on these nodes: a native sidecar, which starts
// before the application and ends after it, and a volume of memory that both share.
func TestNativeSidecarAndMemoryVolume(t *testing.T) {
	namespace := lab.Namespace(t, harness.Restricted)
	always, size := corev1.ContainerRestartPolicyAlways, resource.MustParse("16Mi")
	shared := corev1.VolumeMount{Name: "shared", MountPath: "/shared"}

	sidecar := probe("sidecar", "write", "/shared/line", "from the sidecar")
	sidecar.RestartPolicy = &always
	sidecar.VolumeMounts = []corev1.VolumeMount{shared}
	application := probe("application", "read", "/shared/line")
	application.VolumeMounts = []corev1.VolumeMount{shared}
	application.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}

	p := pod("pair", lab.Nodes()[0].Name, application)
	p.Spec.InitContainers = []corev1.Container{sidecar}
	p.Spec.SecurityContext.FSGroup = new(int64(65532))
	p.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size},
	}}}
	create(t, namespace, p)

	done := await(t, namespace, "pair", ended)
	if got := strings.TrimSpace(said(t, namespace, "pair", "application")); got != "from the sidecar" {
		t.Errorf("the application read %q", got)
	}
	if s := done.Status.InitContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 0 {
		t.Errorf("the sidecar did not end in order: %+v", done.Status.InitContainerStatuses[0].State)
	}
}
