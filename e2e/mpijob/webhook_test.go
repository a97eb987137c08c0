//go:build cluster

package mpijob

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// A Job that belongs to no MPIJob gets sidecars from the webhook if its pods name an MPIJob
// that leaves its pods to other controllers; the MPIJob reports their state.
func TestPodsOfOthers(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	j := example(ns, "theirs", "ring", "-rounds", "20")
	j.Spec.PodManagement = v1alpha1.PodsExternal
	submit(t, j)
	b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "workers"}}
	b.Spec.Completions, b.Spec.Parallelism, b.Spec.CompletionMode = new(int32(2)), new(int32(2)), new(batchv1.IndexedCompletion)
	b.Spec.Template = *j.Spec.Template.DeepCopy()
	b.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.Spec.Template.Labels = map[string]string{names.LabelInject: "true", names.LabelJob: j.Name}
	if err := api.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	s := becomes(t, j, v1alpha1.ConditionComplete).Status
	if *s.Ranks.Succeeded != 4 || strings.Join(s.Transports, "") != "tcp" {
		t.Errorf("status %+v", s)
	}
}

// A real StatefulSet replaces pods as soon as they have ended: the job completes nevertheless,
// once, and no pod joins it again.
func TestPodsOfAStatefulSet(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	j := example(ns, "theirs", "ring", "-rounds", "20")
	j.Spec.PodManagement = v1alpha1.PodsExternal
	submit(t, j)
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "set"}}
	s.Spec.Replicas, s.Spec.PodManagementPolicy, s.Spec.ServiceName = new(int32(2)), appsv1.ParallelPodManagement, j.Name
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "set"}}
	s.Spec.Template = *j.Spec.Template.DeepCopy()
	s.Spec.Template.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	s.Spec.Template.Labels = map[string]string{"app": "set", names.LabelInject: "true", names.LabelJob: j.Name}
	if err := api.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; *s.Ranks.Succeeded != 4 || s.FirstFailure != nil {
		t.Errorf("status %+v", s)
	}
	eventually(t, func() error { // its controller tries, and is told why not
		events := kubectl(t, "get", "events", "-n", ns, "--field-selector=involvedObject.name=set,reason=FailedCreate")
		if !strings.Contains(events, "MPIJob theirs is over") && !strings.Contains(events, "none of them can be started again") {
			return fmt.Errorf("events of the StatefulSet:\n%s", events)
		}
		return none(t, j)
	})
}

// The webhook refuses pods that it cannot change, with the remedy.
func TestWebhookRefuses(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	submit(t, example(ns, "ours", "ring"))
	others := example(ns, "others", "ring")
	others.Spec.PodManagement = v1alpha1.PodsExternal
	submit(t, others)
	for want, labels := range map[string]map[string]string{
		"does not name an MPIJob":     {names.LabelInject: "true"},
		"create it first":             {names.LabelInject: "true", names.LabelJob: "missing"},
		"podManagement: External":     {names.LabelInject: "true", names.LabelJob: "ours"},
		"give others the label":       {names.LabelInject: "true", names.LabelJob: "others"},
		"number 7 of a job of 2 pods": {names.LabelInject: "true", names.LabelJob: "others", names.LabelPodNumber: "7"},
		"want true or false":          {names.LabelInject: "perhaps"},
		"want the pod's number":       {names.LabelInject: "true", names.LabelJob: "others", names.LabelPodNumber: "one"},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", Labels: labels}, Spec: *others.Spec.Template.Spec.DeepCopy()}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		if err := api.Create(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want a refusal that says %q", labels, err, want)
		}
	}
}
