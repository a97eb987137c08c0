//go:build cluster

package mpijob

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// Two ranks of 1 GiB each share a pod: its sidecar's limit holds both.
func TestLargeArena(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	j := example(ns, "large", "ring", "-rounds", "20")
	arena := resource.MustParse("1Gi")
	j.Spec.Memory.Arena = &arena
	s := becomes(t, submit(t, j), v1alpha1.ConditionComplete).Status
	if *s.Ranks.Succeeded != 4 {
		t.Errorf("ranks %+v", s.Ranks)
	}
}

// A pod is Guaranteed if the application is and the sidecar's CPU has a limit; a Guaranteed
// pod may have cores of its own.
func TestGuaranteed(t *testing.T) {
	ns := restricted(t)
	j := example(ns, "guaranteed", "ring", "-rounds", "200", "-pause", "20ms")
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: small, Limits: small}
	j.Spec.Sidecar.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")}
	submit(t, j)
	if p := podOf(t, j, 0); p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("the pod is %s", p.Status.QOSClass)
	}
	becomes(t, j, v1alpha1.ConditionComplete)
}

// Keys by token: a job has no Secret; the sidecar has a token for the issuer and no other one,
// and the application has no token.
func TestKeysByToken(t *testing.T) {
	ns := restricted(t)
	j := submit(t, example(ns, "keys", "ring", "-rounds", "200", "-pause", "20ms"))
	p := podOf(t, j, 0)
	secrets := new(corev1.SecretList)
	if err := api.List(t.Context(), secrets, client.InNamespace(ns)); err != nil || len(secrets.Items) != 0 {
		t.Errorf("%d Secrets in the namespace of a job, %v", len(secrets.Items), err)
	}
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "keys"}, new(networkingv1.NetworkPolicy)); err != nil {
		t.Errorf("the job's policy: %v", err)
	}
	mounts := func(c *corev1.Container) map[string]string {
		all := map[string]string{}
		for _, m := range c.VolumeMounts {
			all[m.MountPath] = m.Name
		}
		return all
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		m := mounts(c)
		if m[account] != names.VolumeNone || (m[names.TokenDir] == names.VolumeToken) != (c.Name == names.ContainerSidecar) {
			t.Errorf("%s mounts %v", c.Name, m)
		}
	}
	app := mounts(&p.Spec.Containers[0])
	if _, there := app[names.TokenDir]; there || !strings.HasPrefix(app[account], "kube-api-access") {
		t.Errorf("the application mounts %v", app)
	}
	becomes(t, j, v1alpha1.ConditionComplete)
	log := kubectl(t, "logs", "-n", release, "-l", "app.kubernetes.io/name=outrigger-operator", "--tail=-1")
	if !strings.Contains(log, "certificate issued") || !strings.Contains(log, "namespace="+ns) {
		t.Errorf("no operator says that it has issued a certificate to %s", ns)
	}
}

// An application that mounts the sidecar's volumes, or would see its processes, does not
// start, and the job has the reason.
func TestApplicationTakesWhatIsOurs(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	n := 0
	for want, change := range map[string]func(*corev1.PodSpec){
		"which is the sidecar's": func(s *corev1.PodSpec) {
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: names.VolumeToken, MountPath: "/token"}}
		},
		"which only sidecars have": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: names.TokenAudience, Path: "t"}}},
			}}}}
		},
	} {
		n++
		j := example(ns, fmt.Sprint("thief", n), "ring")
		change(&j.Spec.Template.Spec)
		submit(t, j)
		eventually(t, func() error {
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), j); err != nil {
				return err
			}
			for _, c := range j.Status.Conditions {
				if c.Type == v1alpha1.ConditionPending && c.Reason == v1alpha1.ReasonInvalid && strings.Contains(c.Message, want) {
					return nil
				}
			}
			return fmt.Errorf("%+v, want a condition that says %q", j.Status.Conditions, want)
		})
	}
	j := example(ns, "watcher", "ring")
	j.Spec.Template.Spec.ShareProcessNamespace = new(true)
	if err := api.Create(t.Context(), j); err == nil || !strings.Contains(err.Error(), "shareProcessNamespace") {
		t.Errorf("a job whose application would see the sidecar's processes: %v", err)
	}
}

// A job runs in a namespace whose quota is just large enough: the operator requests what
// docs/mpijob-reference.md states.
func TestQuotaThatFits(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	q := resource.MustParse
	quota := &corev1.ResourceQuota{}
	quota.Namespace, quota.Name = ns, "q"
	// Two pods: the sidecar 256 MiB by the formula of docs/mpijob-reference.md, the application
	// 64Mi; the installer runs before them.
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsMemory: q("640Mi"), corev1.ResourceRequestsCPU: q("700m"), corev1.ResourcePods: q("2"), corev1.ResourceSecrets: q("0")}
	if err := api.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	j := example(ns, "fits", "ring", "-rounds", "20")
	small := corev1.ResourceList{corev1.ResourceCPU: q("100m"), corev1.ResourceMemory: q("64Mi")}
	j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: small, Limits: small}
	becomes(t, submit(t, j), v1alpha1.ConditionComplete)
}
