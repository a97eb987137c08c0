// Package inject gives a pod its sidecar. It is the one place that knows what a
// pod with Outrigger looks like: the operator uses it for the pods of MPIJobs,
// the webhook for pods of other controllers.
//
// The application keeps its user, its image and its security context. It gets
// one mount, the directory with the sidecar's socket; devices, certificates and
// the job document go to the sidecar alone.
package inject

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Settings of the pods of one job.
type Settings struct {
	Image      string            // with outrigger-sidecar and outrigger-launch in its root
	PullPolicy corev1.PullPolicy // empty: Kubernetes' default
	ConfigMap  string            // with the job document
	Secret     string            // with the certificates
	Ranks      int32
	PerPod     int32
	Launch     v1alpha1.LaunchMode
	Devices    []v1alpha1.DeviceRequest
	Number     *int32 // of the one pod that this is about; nil: Jobs tell each pod its own
	Memory     memory.Sizes
	Wait       string // OUTRIGGER_WAIT of the ranks; empty: their default
	LogLevel   string // empty: info
}

// ErrPod is wrapped by every complaint about a pod.
var ErrPod = errors.New("the pod cannot get a sidecar")

// Pod adds the sidecar to spec, in place. A pod that has ours already is left as
// it is: webhooks are asked more than once.
func Pod(spec *corev1.PodSpec, s *Settings) error {
	if slices.ContainsFunc(spec.InitContainers, ours) {
		return nil
	}
	if err := check(spec); err != nil {
		return err
	}
	spec.Volumes = append(spec.Volumes, volumes(s)...)
	spec.InitContainers = append([]corev1.Container{install(s), sidecar(s)}, spec.InitContainers...)
	return application(&spec.Containers[0], s)
}

func ours(c corev1.Container) bool {
	return c.Name == names.ContainerSidecar && slices.Equal(c.Command, []string{programSidecar})
}

// check finds names and mounts that would collide with those added.
func check(spec *corev1.PodSpec) error {
	if len(spec.Containers) != 1 {
		return fmt.Errorf("%w: it has %d containers, want the application's alone", ErrPod, len(spec.Containers))
	}
	for _, v := range spec.Volumes {
		if v.Name == names.VolumeShared || v.Name == names.VolumeJob || v.Name == names.VolumeTLS {
			return fmt.Errorf("%w: its volume %q has a name that Outrigger needs", ErrPod, v.Name)
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if err := checkContainer(&c); err != nil {
			return err
		}
	}
	for _, e := range spec.Containers[0].Env {
		if e.Name == names.EnvPod {
			return fmt.Errorf("%w: container %q sets %s, which Outrigger sets", ErrPod, spec.Containers[0].Name, names.EnvPod)
		}
	}
	return nil
}

func checkContainer(c *corev1.Container) error {
	if c.Name == names.ContainerSidecar || c.Name == names.ContainerInstall {
		return fmt.Errorf("%w: its container %q has a name that Outrigger needs", ErrPod, c.Name)
	}
	for _, m := range c.VolumeMounts {
		if p := path.Clean(m.MountPath); p == names.SharedDir || strings.HasPrefix(p, names.SharedDir+"/") {
			return fmt.Errorf("%w: container %q mounts %s: %s is where the sidecar's socket goes", ErrPod, c.Name, m.MountPath, names.SharedDir)
		}
	}
	return nil
}
