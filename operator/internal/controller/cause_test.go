package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestCauseOutlivesTheOperator: if an operator ends a Job and is killed before it
// writes the status, the next operator reads the cause from the Job. At that time the
// Job's condition only says that its deadline was exceeded, and its pods are gone.
func TestCauseOutlivesTheOperator(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	there := runningJob(now, 1000)
	patience := int64(60)
	there[0].(*v1alpha1.MPIJob).Spec.RunPolicy.PendingDeadlineSeconds = &patience
	pod := there[2].(*corev1.Pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available",
		LastTransitionTime: metav1.NewTime(now),
	}}}
	killed := errors.New("killed")
	dies := true
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, object client.Object, patch client.Patch, how ...client.SubResourcePatchOption) error {
			if dies {
				return killed
			}
			return api.SubResource(sub).Patch(ctx, object, patch, how...)
		},
	}).Build()
	name := client.ObjectKey{Namespace: "hpc", Name: "cg"}
	look := func(r *Reconciler) error {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
		return err
	}
	operator := func() *Reconciler {
		return &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }}
	}
	now = now.Add(time.Duration(patience) * time.Second)
	if err := look(operator()); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	batch := new(batchv1.Job)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: "hpc", Name: "cg-0"}, batch); err != nil {
		t.Fatal(err)
	}
	if batch.Spec.ActiveDeadlineSeconds == nil {
		t.Fatal("the Job was not ended")
	}
	if _, err := lean(batch); err != nil { // as the next operator's cache has it
		t.Fatal(err)
	}
	batch.Status.Conditions = []batchv1.JobCondition{{
		Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, Message: "Job was active longer than specified deadline",
	}}
	if err := api.Status().Update(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dies, now = false, now.Add(time.Minute)
	if err := look(operator()); err != nil {
		t.Fatal(err)
	}
	job := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), name, job); err != nil {
		t.Fatal(err)
	}
	f := job.Status.FirstFailure
	if f == nil || f.Reason != v1alpha1.ReasonPendingDeadlineExceeded || !strings.Contains(f.Message, "0/3 nodes are available") {
		t.Errorf("the first failure is %+v", f)
	}
	if c := trueCondition(&job.Status); c == nil || c.Type != v1alpha1.ConditionFailed || c.Reason != v1alpha1.ReasonPendingDeadlineExceeded {
		t.Errorf("the state is %+v", c)
	}
}
