//go:build cluster

package mpijob

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// resolves adds an init container to a pod, which succeeds when a name has an address. $(NAME)
// in it is a variable of the pod.
func resolves(pod *corev1.PodSpec, name string) {
	c := *pod.Containers[0].DeepCopy()
	c.Name, c.Image, c.RestartPolicy = "resolves", lab.Image(harness.Probe), nil
	c.Command, c.Args = []string{"/usr/local/bin/probe", "lookup", name}, nil
	pod.InitContainers = append(pod.InitContainers, c)
}

// TestPodsOfDeployments: the pods of Deployments, which have no index, are the pods of a job
// by the label of their number. They keep their host name and subdomain, which resolve in each
// of them, and their ranks succeed.
func TestPodsOfDeployments(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	j := example(ns, "deployed", "ring", "-rounds", "20")
	j.Spec.PodManagement = v1alpha1.PodsExternal
	submit(t, j)
	selector := map[string]string{"app": "deployed"}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "workers"}}
	service.Spec.ClusterIP, service.Spec.Selector, service.Spec.PublishNotReadyAddresses = corev1.ClusterIPNone, selector, true
	if err := api.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	for number := range 2 {
		name := fmt.Sprintf("worker-%d", number)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		d.Spec.Replicas = new(int32(1))
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"worker": name}}
		d.Spec.Template = *j.Spec.Template.DeepCopy()
		d.Spec.Template.Labels = map[string]string{
			"app": "deployed", "worker": name, names.LabelInject: "true", names.LabelJob: j.Name, names.LabelPodNumber: fmt.Sprint(number),
		}
		pod := &d.Spec.Template.Spec
		pod.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		pod.Hostname, pod.Subdomain = name, service.Name
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "MASTER_ADDR", Value: "worker-0.workers"}}
		resolves(pod, "$(MASTER_ADDR)")
		if err := api.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 4 || s.FirstFailure != nil {
		t.Errorf("status %+v", s)
	}
}

// TestLimitRanges: jobs run in namespaces whose LimitRange has a minimum, or a default limit
// that is less than a sidecar requests.
func TestLimitRanges(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, c := range map[string]struct {
		item corev1.LimitRangeItem
		app  corev1.ResourceRequirements
	}{
		"floor":   {corev1.LimitRangeItem{Min: list("100m", "128Mi")}, corev1.ResourceRequirements{Requests: list("100m", "128Mi"), Limits: list("500m", "128Mi")}},
		"ceiling": {corev1.LimitRangeItem{Default: list("200m", "256Mi"), DefaultRequest: list("50m", "64Mi")}, corev1.ResourceRequirements{}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := restricted(t)
			c.item.Type = corev1.LimitTypeContainer
			limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{c.item}}}
			if err := api.Create(t.Context(), limits); err != nil {
				t.Fatal(err)
			}
			j := example(ns, name, "ring", "-rounds", "20")
			j.Spec.Template.Spec.Containers[0].Resources = c.app
			if s := becomes(t, submit(t, j), v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 4 || s.FirstFailure != nil {
				t.Errorf("status %+v", s)
			}
		})
	}
}
