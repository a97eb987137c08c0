//go:build cluster

package apitest

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestQueue: a queueing controller such as Kueue finds its label on the Job. The operator does
// not overwrite the value that the controller sets in the Job's suspend field until the MPIJob
// itself is suspended.
func TestQueue(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "hpc"} })
	b := get(t, ns, "cg-0", &batchv1.Job{})
	if b.Labels["kueue.x-k8s.io/queue-name"] != "hpc" {
		t.Fatalf("labels of the Job: %v", b.Labels)
	}
	queue := func(suspend string) { // as Kueue would: with its own field owner
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":`+suspend+`}}`))
		if err := api.Patch(t.Context(), b.DeepCopy(), patch, client.FieldOwner("kueue-stand-in")); err != nil {
			t.Fatal(err)
		}
	}
	queue("true")
	becomes(t, j, v1alpha1.ConditionSuspended)
	now := get(t, ns, "cg", &v1alpha1.MPIJob{})
	now.Spec.RunPolicy.RestartLimit = ptr(int32(2)) // any change that makes the operator reconcile the job
	if err := api.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	quiet(t, ns)
	if b = get(t, ns, "cg-0", &batchv1.Job{}); !*b.Spec.Suspend {
		t.Fatal("the operator started a Job that the queue holds")
	}
	queue("false")
	b = get(t, ns, "cg-0", &batchv1.Job{})
	standInPods(t, b)
	becomes(t, j, v1alpha1.ConditionRunning)
}

// TestQueuedJobOfAFailedOne: if the deadline of a job is over while a queue holds its next
// attempt, the operator deletes the Job of that attempt, because the queue would start it.
func TestQueuedJobOfAFailedOne(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) {
		restarting(j)
		j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "hpc"}
		j.Spec.RunPolicy.ActiveDeadlineSeconds = ptr(int64(12))
	})
	for _, p := range standInPods(t, get(t, ns, "cg-0", &batchv1.Job{})) {
		exits(t, p, 3, "")
	}
	becomes(t, j, v1alpha1.ConditionRestarting)
	if err := api.DeleteAllOf(t.Context(), new(corev1.Pod), client.InNamespace(ns), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b := get(t, ns, "cg-1", &batchv1.Job{})
	if err := api.Patch(t.Context(), b, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":true}}`))); err != nil {
		t.Fatal(err)
	}
	if f := becomes(t, j, v1alpha1.ConditionFailed).Status.FirstFailure; f.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("first failure %+v", f)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); !apierrors.IsNotFound(err) {
		t.Errorf("the queue still holds the Job of a job that has failed: %v, %+v", err, b.Spec)
	}
	quiet(t, ns)
}
