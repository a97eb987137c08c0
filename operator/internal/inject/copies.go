package inject

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// The API server may call a webhook more than once for a pod, and the author of a pod
// may include a copy of the added containers. Existing containers and volumes therefore
// have to equal the ones that would be added, after the defaulting of the API server.
// Allowed are changes that other admission makes: imagePullPolicy (AlwaysPullImages),
// resources that ours does not name (LimitRanger), the user and the SELinux level
// (OpenShift), and the variables and mounts of Settings (workload identity). Otherwise
// another webhook could start a program in the sidecar's container, which has the job's
// key.

// has reports whether a pod has all containers and volumes with our names. If it has
// only some of them, check reports these names as taken.
func has(spec *corev1.PodSpec) bool {
	for _, name := range reserved {
		if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			return false
		}
	}
	for _, name := range []string{names.ContainerInstall, names.ContainerSidecar} {
		if !slices.ContainsFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }) {
			return false
		}
	}
	return true
}

// alike returns an error with the first difference between the pod's containers and
// volumes and those that would be added.
func alike(spec *corev1.PodSpec, s *Settings) error {
	ours := volumes(s)
	if hasSHM(spec) {
		ours = append(ours, shmVolume(s))
	}
	for _, want := range ours {
		at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == want.Name })
		if !equality.Semantic.DeepEqual(spec.Volumes[at], want) {
			return fmt.Errorf("%w: its volume %q is another one than the one that Outrigger adds; leave it out", ErrPod, want.Name)
		}
	}
	user := s.user(spec)
	for _, want := range []corev1.Container{install(s, user), sidecar(s, user)} {
		at := slices.IndexFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == want.Name })
		c := spec.InitContainers[at].DeepCopy()
		s.assigned(c.SecurityContext, want.SecurityContext, spec)
		if what := difference(c, want.DeepCopy(), s); what != "" {
			return fmt.Errorf("%w: its container %q differs from the one that Outrigger adds: %s; leave it unchanged, or have the administrator allow the variable or mount (webhook.allowedVariables, webhook.allowedMounts of the chart)", ErrPod, want.Name, what)
		}
	}
	return nil
}

// difference returns the first field in which a container differs from ours in a way
// that is not allowed; empty if there is none. It changes both.
func difference(c, want *corev1.Container, s *Settings) string {
	if what := added(c, want, s); what != "" {
		return what
	}
	if what := resourceDifference(&c.Resources, &want.Resources); what != "" {
		return what
	}
	c.Resources, c.ImagePullPolicy = want.Resources, want.ImagePullPolicy
	c.ResizePolicy = slices.DeleteFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.RestartPolicy == corev1.NotRequired })
	setDefaults(c)
	setDefaults(want)
	is, ours := reflect.ValueOf(c).Elem(), reflect.ValueOf(want).Elem()
	for i := range is.NumField() {
		if !equality.Semantic.DeepEqual(is.Field(i).Interface(), ours.Field(i).Interface()) {
			field, _, _ := strings.Cut(is.Type().Field(i).Tag.Get("json"), ",")
			return field
		}
	}
	return ""
}

// added removes the allowed additional variables and mounts from c, and returns the
// first one that is not allowed.
func added(c, want *corev1.Container, s *Settings) (what string) {
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool {
		if slices.ContainsFunc(want.Env, func(o corev1.EnvVar) bool { return o.Name == e.Name }) {
			return false
		}
		if !slices.Contains(s.AllowedVariables, e.Name) && what == "" {
			what = "variable " + e.Name
		}
		return true
	})
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
		if slices.ContainsFunc(want.VolumeMounts, func(o corev1.VolumeMount) bool { return o.MountPath == m.MountPath }) {
			return false
		}
		if !slices.Contains(s.AllowedMounts, m.MountPath) && what == "" {
			what = "mount of " + m.MountPath
		}
		return true
	})
	return what
}

// resourceDifference returns the first resource of ours that r lacks or has with
// another value.
func resourceDifference(r, want *corev1.ResourceRequirements) string {
	if len(r.Claims) > 0 {
		return "resources.claims"
	}
	for _, l := range []struct {
		of       string
		is, ours corev1.ResourceList
	}{{"requests", r.Requests, want.Requests}, {"limits", r.Limits, want.Limits}} {
		for name, q := range l.ours {
			if has, ok := l.is[name]; !ok || has.Cmp(q) != 0 {
				return fmt.Sprintf("resources.%s.%s", l.of, name)
			}
		}
	}
	return ""
}

// setDefaults sets the defaults of the API server in the fields of a container that
// ours uses or leaves out (pkg/apis/core/v1/defaults.go of Kubernetes).
func setDefaults(c *corev1.Container) {
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			fill(&from.FieldRef.APIVersion, "v1")
		}
	}
	if s := c.SecurityContext; s != nil && s.ProcMount != nil && *s.ProcMount == corev1.DefaultProcMount {
		s.ProcMount = nil
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe} {
		if p == nil {
			continue
		}
		fill(&p.TimeoutSeconds, 1)
		fill(&p.PeriodSeconds, 10)
		fill(&p.SuccessThreshold, 1)
		fill(&p.FailureThreshold, 3)
		if p.HTTPGet != nil {
			fill(&p.HTTPGet.Path, "/")
			fill(&p.HTTPGet.Scheme, corev1.URISchemeHTTP)
		}
	}
}

func fill[T comparable](field *T, value T) {
	var none T
	if *field == none {
		*field = value
	}
}
