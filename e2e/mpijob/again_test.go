//go:build cluster

package mpijob

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// An MPIJob that is deleted and created again at once, as by kubectl delete and apply, after
// its failure and while it runs: the new one runs, although objects of the earlier one still
// exist.
func TestCreatedAgain(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	remove := func(j *v1alpha1.MPIJob) {
		t.Helper()
		if err := api.Delete(t.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	j := submit(t, long(ns, "again", "-fail-rank", "3", "-fail-round", "100"))
	remove(becomes(t, j, v1alpha1.ConditionFailed))
	j = submit(t, long(ns, "again"))
	podOf(t, j, 1)
	remove(becomes(t, j, v1alpha1.ConditionRunning))
	if s := becomes(t, submit(t, example(ns, "again", "ring", "-rounds", "20")), v1alpha1.ConditionComplete).Status; s.FirstFailure != nil {
		t.Errorf("%+v", s.FirstFailure)
	}
}

// The same with the pods of another controller, which have ended and stay.
func TestPodsOfOthersAgain(t *testing.T) {
	t.Parallel()
	ns := restricted(t)
	run := func(pods, condition string, command ...string) *v1alpha1.MPIJob {
		t.Helper()
		j := example(ns, "theirs", command...)
		j.Spec.PodManagement = v1alpha1.PodsExternal
		submit(t, j)
		b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pods}}
		b.Spec.Completions, b.Spec.Parallelism, b.Spec.CompletionMode = new(int32(2)), new(int32(2)), new(batchv1.IndexedCompletion)
		b.Spec.BackoffLimit = new(int32(0))
		b.Spec.Template = *j.Spec.Template.DeepCopy()
		b.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		b.Spec.Template.Labels = map[string]string{names.LabelInject: "true", names.LabelJob: j.Name}
		if err := api.Create(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return becomes(t, j, condition)
	}
	j := run("first", v1alpha1.ConditionFailed, "ring", "-fail-rank", "3", "-fail-round", "10")
	if err := api.Delete(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if s := run("second", v1alpha1.ConditionComplete, "ring", "-rounds", "20").Status; s.FirstFailure != nil {
		t.Errorf("%+v", s.FirstFailure)
	}
}
