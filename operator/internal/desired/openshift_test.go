package desired

import (
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/inject"
)

// admission implements the rules by which OpenShift's SecurityContextConstraints restricted-v2
// admit the pods of a namespace, in OpenShift 4.11 and newer (pkg/securitycontextconstraints
// of openshift/apiserver-library-go): it sets the fields that a pod leaves out, and refuses
// values that the rules do not allow.
type admission struct {
	first, count int64  // value of the annotation openshift.io/sa.scc.uid-range
	level        string // value of the annotation openshift.io/sa.scc.mcs
}

// admit sets the fields that a pod leaves out, and returns why the pod is refused; empty if it
// is admitted.
func (a *admission) admit(p *corev1.PodSpec) string {
	if p.HostNetwork || p.HostPID || p.HostIPC {
		return "namespaces of the host"
	}
	for _, v := range p.Volumes {
		if s := v.VolumeSource; s.ConfigMap == nil && s.CSI == nil && s.DownwardAPI == nil && s.EmptyDir == nil && s.Ephemeral == nil && s.PersistentVolumeClaim == nil && s.Projected == nil && s.Secret == nil {
			return "volume " + v.Name
		}
	}
	if p.SecurityContext == nil {
		p.SecurityContext = new(corev1.PodSecurityContext)
	}
	pod := p.SecurityContext
	if pod.FSGroup == nil {
		pod.FSGroup = &a.first
	} else if *pod.FSGroup != a.first {
		return "fsGroup"
	}
	if pod.SELinuxOptions == nil {
		pod.SELinuxOptions = &corev1.SELinuxOptions{Level: a.level}
	}
	if pod.SeccompProfile == nil {
		pod.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	for _, list := range [][]corev1.Container{p.InitContainers, p.Containers} {
		for i := range list {
			if why := a.contain(&list[i], pod); why != "" {
				return list[i].Name + ": " + why
			}
		}
	}
	return ""
}

func (a *admission) contain(c *corev1.Container, pod *corev1.PodSecurityContext) string {
	if c.SecurityContext == nil {
		c.SecurityContext = new(corev1.SecurityContext)
	}
	s := c.SecurityContext
	if s.RunAsUser == nil && pod.RunAsUser == nil {
		s.RunAsUser = &a.first
	}
	if s.SELinuxOptions == nil { // releases differ in whether they also set it for containers
		s.SELinuxOptions = &corev1.SELinuxOptions{Level: a.level}
	}
	if s.AllowPrivilegeEscalation == nil {
		s.AllowPrivilegeEscalation = new(false)
	}
	if s.Capabilities == nil {
		s.Capabilities = new(corev1.Capabilities)
	}
	if !slices.Contains(s.Capabilities.Drop, "ALL") {
		s.Capabilities.Drop = append(s.Capabilities.Drop, "ALL")
	}
	user := pod.RunAsUser
	if s.RunAsUser != nil {
		user = s.RunAsUser
	}
	switch {
	case *user < a.first || *user >= a.first+a.count:
		return "runAsUser " + strconv.FormatInt(*user, 10)
	case s.Privileged != nil && *s.Privileged:
		return "privileged"
	case *s.AllowPrivilegeEscalation:
		return "allowPrivilegeEscalation"
	case *s.SELinuxOptions != corev1.SELinuxOptions{Level: a.level}:
		return "seLinuxOptions"
	case s.SeccompProfile != nil && s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
		return "seccompProfile"
	case s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount:
		return "procMount"
	}
	for _, added := range s.Capabilities.Add {
		if added != "NET_BIND_SERVICE" {
			return "capability " + string(added)
		}
	}
	for _, port := range c.Ports {
		if port.HostPort != 0 {
			return "hostPort"
		}
	}
	return ""
}

// usersOf returns the user ids of a pod's sidecar and of its application.
func usersOf(p *corev1.PodSpec) (sidecar, app int64) {
	for _, c := range p.InitContainers {
		if c.Name == names.ContainerSidecar {
			sidecar = *c.SecurityContext.RunAsUser
		}
	}
	c := p.Containers[0].SecurityContext
	if c.RunAsUser == nil {
		return sidecar, *p.SecurityContext.RunAsUser
	}
	return sidecar, *c.RunAsUser
}

// TestRestrictedV2: OpenShift admits the pods that are made for MPIJobs and pods of other
// controllers. If the namespace has two user ids, the sidecars have their own. The webhook
// recognizes its containers after OpenShift has changed them.
func TestRestrictedV2(t *testing.T) {
	const first = 1000680000
	for what, c := range map[string]struct {
		annotation string
		count      int64
		user       *int64 // set in the chart's values
		pod, app   *int64
		shared     bool
	}{
		"a range":                     {"1000680000/10000", 10000, nil, nil, nil, false},
		"a range in other words":      {"1000680000-1000689999", 10000, nil, nil, nil, false},
		"an application's user":       {"1000680000/10000", 10000, nil, nil, new(int64(first + 9999)), false},
		"a pod's user":                {"1000680000/10000", 10000, nil, new(int64(first + 9999)), nil, false},
		"two users":                   {"1000680000/2", 2, nil, nil, new(int64(first + 1)), false},
		"one user":                    {"1000680000/1", 1, nil, nil, nil, true},
		"a user of the values":        {"1000680000/10000", 10000, new(int64(65532)), nil, nil, false},
		"a namespace is not readable": {"", 10000, new(int64(0)), nil, nil, true},
	} {
		scc := &admission{first, c.count, "s0:c26,c20"}
		a := attempt("cg", 4, 2)
		a.Options.User, a.UIDs = c.user, inject.UIDsOf(map[string]string{"openshift.io/sa.scc.uid-range": c.annotation})
		spec := &a.Job.Spec.Template.Spec
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: c.pod}
		spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: c.app}
		b, err := a.BatchJob()
		if err != nil {
			t.Fatal(err)
		}
		made := &b.Spec.Template.Spec
		if why := scc.admit(made); why != "" {
			t.Errorf("%s: a pod of an MPIJob is refused: %s", what, why)
		}
		a.Job.Spec.PodManagement = v1alpha1.PodsExternal
		p := &corev1.Pod{Spec: *a.Job.Spec.Template.Spec.DeepCopy()}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		if err := a.Join(p, 1); err != nil {
			t.Fatal(err)
		}
		if why := scc.admit(&p.Spec); why != "" {
			t.Errorf("%s: a pod of another controller is refused: %s", what, why)
		}
		for _, spec := range []*corev1.PodSpec{made, &p.Spec} {
			if sidecar, app := usersOf(spec); (sidecar == app) != c.shared {
				t.Errorf("%s: the sidecar's user is %d, the application's %d", what, sidecar, app)
			}
		}
		if err := a.Join(p, 1); err != nil {
			t.Errorf("%s: the webhook is asked again, and refuses the pod: %v", what, err)
		}
		// If the pod's author has made further changes to the sidecar, the pod is refused.
		for change, alter := range map[string]func(s *corev1.SecurityContext){
			"another type":  func(s *corev1.SecurityContext) { s.SELinuxOptions.Type = "spc_t" },
			"another user":  func(s *corev1.SecurityContext) { s.RunAsUser = new(int64(1)) },
			"another group": func(s *corev1.SecurityContext) { s.RunAsGroup = new(int64(1)) },
			"root":          func(s *corev1.SecurityContext) { s.RunAsUser = new(int64(0)) },
			"its application's user": func(s *corev1.SecurityContext) {
				_, app := usersOf(&p.Spec)
				s.RunAsUser = &app
			},
		} {
			if c.shared && (change == "its application's user" || change == "another user" && c.annotation == "") {
				continue // the container has that user, or the range is not known
			}
			copied := p.DeepCopy()
			alter(copied.Spec.InitContainers[1].SecurityContext)
			if err := a.Join(copied, 1); err == nil {
				t.Errorf("%s: a sidecar with %s is let in", what, change)
			}
		}
	}
}

// TestUIDs: an annotation that is not a range of user ids counts as no range.
func TestUIDs(t *testing.T) {
	for text, want := range map[string]inject.UIDs{
		"1000680000/10000": {First: 1000680000, Count: 10000}, " 1000/1 ": {First: 1000, Count: 1}, "5-5": {First: 5, Count: 1}, "0/10": {First: 0, Count: 10},
		"": {}, "x": {}, "1000": {}, "1000/": {}, "/1": {}, "1000/0": {}, "1000/-1": {}, "-1/5": {}, "7-5": {}, "1-2-3": {}, "1/2/3": {},
		"9223372036854775807/9223372036854775807": {}, "2147483647/2": {}, "2147483647/1": {First: 2147483647, Count: 1}, "1e3/5": {},
	} {
		if got := inject.UIDsOf(map[string]string{"openshift.io/sa.scc.uid-range": text}); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
	if got := inject.UIDsOf(nil); got != (inject.UIDs{}) {
		t.Error(got)
	}
}
