//go:build cluster && oldest

package mpijob

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// oldest is the minor version of the oldest supported Kubernetes.
const oldest = "33"

// Two Indexed Jobs with the labels of a JobSet are one job, by the oldest API server and
// kubelet, and pods that always restart are refused with the version.
func TestOldestKubernetes(t *testing.T) {
	server, err := discovery.NewDiscoveryClientForConfig(lab.Config)
	if err != nil {
		t.Fatal(err)
	}
	v, err := server.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimRight(v.Minor, "+") != oldest {
		t.Fatalf("the cluster has Kubernetes %s, want 1.%s: bring it up with KUBERNETES=oldest", v.GitVersion, oldest)
	}
	ns := restricted(t)
	j := example(ns, "set", "ring", "-rounds", "20")
	j.Spec.PodManagement = v1alpha1.PodsExternal
	submit(t, j)
	always := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "always", Labels: map[string]string{names.LabelInject: "true", names.LabelJob: j.Name, names.LabelPodNumber: "0"}}}
	always.Spec = *j.Spec.Template.Spec.DeepCopy()
	always.Spec.RestartPolicy, always.Spec.Containers[0].RestartPolicy = corev1.RestartPolicyAlways, new(corev1.ContainerRestartPolicyNever)
	if err := api.Create(t.Context(), always); err == nil || !strings.Contains(err.Error(), "this cluster has Kubernetes 1."+oldest) {
		t.Errorf("a pod as a StatefulSet makes it: %v", err)
	}
	for i := range 2 {
		b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("set-workers-", i)}}
		b.Spec.Completions, b.Spec.Parallelism, b.Spec.CompletionMode = new(int32(1)), new(int32(1)), new(batchv1.IndexedCompletion)
		b.Spec.Template = *j.Spec.Template.DeepCopy()
		b.Spec.Template.Spec.RestartPolicy, b.Spec.Template.Spec.Subdomain = corev1.RestartPolicyNever, "set"
		b.Spec.Template.Labels = map[string]string{
			names.LabelInject: "true", names.LabelJob: j.Name,
			"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/job-global-index": fmt.Sprint(i), "jobset.sigs.k8s.io/global-replicas": "2",
		}
		if err := api.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	p := podOf(t, j, 1)
	if p.Spec.Subdomain != "set" {
		t.Errorf("the pod's subdomain is %q, want its controller's", p.Spec.Subdomain)
	}
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 4 || strings.Join(s.Transports, "") != "tcp" {
		t.Errorf("status %+v", s)
	}
}
