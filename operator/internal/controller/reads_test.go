package controller

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// news reconciles a job for 10 s at each change of its pods, as every user with the
// right to label pods can cause, with an API server that refuses every change of a Job.
// It counts the reads past the caches and the tries.
func news(t *testing.T, there ...client.Object) (reads, tries int64, job *v1alpha1.MPIJob) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var read, tried atomic.Int64
	down := apierrors.NewInternalError(errors.New("failed calling webhook"))
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			tried.Add(1)
			return down
		},
	}).Build()
	live := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, how ...client.GetOption) error {
			read.Add(1)
			return api.Get(ctx, key, into, how...)
		},
	})
	r := &Reconciler{Client: api, Live: live, Events: events.NewFakeRecorder(1000), Now: func() time.Time { return now }}
	name := client.ObjectKey{Namespace: "hpc", Name: "cg"}
	for range 200 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil && !errors.Is(err, down) {
			t.Fatal(err)
		}
		now = now.Add(newsOfPods)
	}
	job = new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), name, job); err != nil {
		t.Fatal(err)
	}
	return read.Load(), tried.Load(), job
}

// TestRefusedEndIsReadAsRarelyAsItIsTried: a finished job whose pods cannot be ended
// because of a webhook costs reads for each try, and not for each reconciliation.
func TestRefusedEndIsReadAsRarelyAsItIsTried(t *testing.T) {
	there := runningJob(time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), 11)
	there[0].(*v1alpha1.MPIJob).Spec.RunPolicy.Disruption = ""
	reads, tries, job := news(t, there...)
	if tries < 2 || tries > 10 || reads > tries {
		t.Errorf("%d reads for %d tries", reads, tries)
	}
	if c := trueCondition(&job.Status); c == nil || c.Reason != v1alpha1.ReasonAPIError {
		t.Errorf("the state is %+v", c)
	}
}

// TestLostJobIsReadOnce: a missing Job is read from the API server once, and not at
// each reconciliation.
func TestLostJobIsReadOnce(t *testing.T) {
	began := metav1.NewTime(time.Date(2026, 3, 1, 11, 59, 59, 0, time.UTC))
	limit := int32(9)
	for state, want := range map[string]int64{v1alpha1.ConditionRestarting: 1, v1alpha1.ConditionFailed: 0} {
		j := runningJob(began.Time, 1000)[0].(*v1alpha1.MPIJob)
		j.Spec.RunPolicy.RestartLimit = &limit
		restarts := int32(8) // so that the next restart waits long
		j.Status.Restarts, j.Status.JobName = &restarts, "cg-8"
		j.Status.Conditions = []metav1.Condition{{Type: state, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPodLost, LastTransitionTime: began}}
		if reads, _, _ := news(t, j); reads > want {
			t.Errorf("%s: %d reads, want %d", state, reads, want)
		}
	}
}

// TestUnwrittenStatus: the write of a status that the API server refuses is tried with
// exponential back-off, however often the job is reconciled. The job's deadline is
// kept, and its pods are ended once.
func TestUnwrittenStatus(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	began := now
	down := apierrors.NewInternalError(errors.New("failed calling webhook"))
	var tried, ended int
	there := runningJob(now, 100)
	there[0].(*v1alpha1.MPIJob).Spec.RunPolicy.Disruption = ""
	there[1].SetAnnotations(map[string]string{"outrigger.dev/steered": "suspend=false,queue="})
	refuses := true
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, api client.Client, sub string, object client.Object, patch client.Patch, how ...client.SubResourcePatchOption) error {
			if tried++; refuses {
				return down
			}
			return api.SubResource(sub).Patch(ctx, object, patch, how...)
		},
		Patch: func(ctx context.Context, api client.WithWatch, object client.Object, patch client.Patch, how ...client.PatchOption) error {
			ended++
			if at := now.Sub(began); at < 99*time.Second || at > 101*time.Second {
				t.Errorf("the job was ended after %v", at)
			}
			return api.Patch(ctx, object, patch, how...)
		},
	}).Build()
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(1000), Now: func() time.Time { return now }}
	name := client.ObjectKey{Namespace: "hpc", Name: "cg"}
	looks := 0
	look := func() time.Duration {
		looks++
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
		if err != nil {
			t.Fatal(err) // the queue would otherwise delay it by a quarter of an hour
		}
		return result.RequeueAfter
	}
	for now.Sub(began) < 3*time.Minute {
		next := look()
		if next <= 0 {
			t.Fatalf("no reconciliation after %v", now.Sub(began))
		}
		now = now.Add(next)
	}
	if tried > 15 || ended != 1 || looks > 50 {
		t.Errorf("%d looks, the status was tried %d times, the Job was ended %d times", looks, tried, ended)
	}
	refuses = false
	now = now.Add(troubleMax)
	look()
	job := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), name, job); err != nil {
		t.Fatal(err)
	}
	if c := trueCondition(&job.Status); c == nil || c.Type != v1alpha1.ConditionFailed || c.Reason != v1alpha1.ReasonDeadlineExceeded {
		t.Errorf("the state is %+v", c)
	}
}

// TestActionDoesNotWaitForItsStatus: if the API server refuses both an action and the
// write of the status about it, the action is tried again at the same time as if the
// status had been written.
func TestActionDoesNotWaitForItsStatus(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	down := apierrors.NewInternalError(errors.New("failed calling webhook"))
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(runningJob(now, 1000)...).WithStatusSubresource(&v1alpha1.MPIJob{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return down },
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return down
		},
	}).Build()
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(1000), Now: func() time.Time { return now }}
	request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "hpc", Name: "cg"}}
	job := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), request.NamespacedName, job); err != nil {
		t.Fatal(err)
	}
	for range 10 { // the write of the status has been refused for a long time
		r.recent.failed(job, statusWrite, down, 0, now)
	}
	result, err := r.Reconcile(t.Context(), request)
	if !errors.Is(err, down) || errors.As(err, new(*unwritten)) {
		t.Errorf("an action that was refused is put off by %v: %v", result.RequeueAfter, err)
	}
	if result, err = r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 2*pace {
		t.Errorf("it is tried again in %v: %v", result.RequeueAfter, err)
	}
}

// TestRefusedRemovalIsNamed: if only the budget of a job cannot be removed, the status
// names the budget.
func TestRefusedRemovalIsNamed(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	there := runningJob(now, 10)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", OwnerReferences: there[1].GetOwnerReferences()}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(there, budget)...).WithStatusSubresource(&v1alpha1.MPIJob{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		},
	}).Build()
	now = now.Add(time.Minute) // its deadline has passed
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(1000), Now: func() time.Time { return now }}
	name := client.ObjectKey{Namespace: "hpc", Name: "cg"}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err == nil {
		t.Fatal("the removal was not refused")
	}
	job := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), name, job); err != nil {
		t.Fatal(err)
	}
	if c := trueCondition(&job.Status); c == nil || !strings.Contains(c.Message, "removing PodDisruptionBudget cg: ") || strings.Contains(c.Message, "pods cannot") {
		t.Errorf("the state is %+v", c)
	}
}
