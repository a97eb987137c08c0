package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// standing returns the reconciler of a job with one pod whose objects cannot be made,
// and the number of tries.
func standing(t *testing.T, cause error, now *time.Time, there ...client.Object) (r *Reconciler, look func() ctrl.Result, tries *atomic.Int64) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	tries = new(atomic.Int64)
	refuse := interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		tries.Add(1)
		return cause
	}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).WithInterceptorFuncs(refuse).Build()
	authority, err := pki.New("1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r = &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Keys: oneKey{authority}, IssuerURL: "https://issuer.test/", Now: func() time.Time { return *now }}
	return r, func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "hpc", Name: "cg"}})
		if err != nil && !errors.Is(err, cause) {
			t.Fatal(err)
		}
		return result
	}, tries
}

// runningJob returns the objects of a running job that has a deadline and asks for a
// budget.
func runningJob(now time.Time, deadline int64) []client.Object {
	yes, no := true, false
	began := metav1.NewTime(now.Add(-time.Second))
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Name: "cg", Namespace: "hpc", UID: "1", Generation: 2, CreationTimestamp: began}}
	j.Spec.Ranks, j.Spec.RanksPerPod = 1, 1
	j.Spec.RunPolicy.ActiveDeadlineSeconds, j.Spec.RunPolicy.Disruption = &deadline, v1alpha1.DisruptionPrevented
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Command: []string{"cg"}}}
	j.Status.JobName, j.Status.StartTime, j.Status.ObservedGeneration = "cg-0", &began, 2
	b := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "cg-0", Namespace: "hpc", UID: "2", Labels: map[string]string{names.LabelJob: "cg", names.LabelAttempt: "0"}}}
	b.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MPIJob", Name: "cg", UID: "1", Controller: &yes}}
	b.Spec.Suspend, b.Status.StartTime = &no, &began
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "cg-0-0", Namespace: "hpc", UID: "3", CreationTimestamp: metav1.NewTime(now),
		Labels:          map[string]string{names.LabelJob: "cg", names.LabelAttempt: "0", batchv1.JobCompletionIndexAnnotation: "0"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "cg-0", UID: "2", Controller: &yes}},
	}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return []client.Object{j, b, p}
}

// TestDeadlineDoesNotWaitForARefusedChange: a job whose change is refused ends at its
// deadline, and not at the next try of the change.
func TestDeadlineDoesNotWaitForARefusedChange(t *testing.T) {
	budget := policyv1.Resource("poddisruptionbudgets")
	for name, cause := range map[string]error{
		"forbidden": apierrors.NewForbidden(budget, "cg", errors.New("quota")),
		"error":     apierrors.NewInternalError(errors.New("webhook is down")),
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			began := now.Add(-time.Second)
			_, look, tries := standing(t, cause, &now, runningJob(now, 11)...)
			for range 16 { // each error doubles the time to the next try
				look()
				result := look()
				if left := began.Add(11 * time.Second).Sub(now); result.RequeueAfter <= 0 || result.RequeueAfter > left {
					t.Fatalf("the next look is in %v, and the job's time is over in %v (%d tries)", result.RequeueAfter, left, tries.Load())
				}
				if now = now.Add(result.RequeueAfter); now.Sub(began) >= 11*time.Second {
					return
				}
			}
			t.Errorf("after %d looks it is %v", 16, now)
		})
	}
}

// TestRefusedBeginIsNotTriedAtEachNews: every user with the right to label pods can
// cause reconciliations of a job. A refused start is not tried again at each of them.
func TestRefusedBeginIsNotTriedAtEachNews(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, look, tries := standing(t, apierrors.NewForbidden(corev1.Resource("services"), "cg", errors.New("exceeded quota")), &now, runningJob(now, 1000)[0])
	job := new(v1alpha1.MPIJob)
	if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "hpc", Name: "cg"}, job); err != nil {
		t.Fatal(err)
	}
	job.Status = v1alpha1.MPIJobStatus{}
	if err := r.Client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	for range 200 { // changes of pods during 10 s
		if result := look(); result.RequeueAfter <= 0 || result.RequeueAfter > 10*time.Minute {
			t.Fatalf("the next look is in %v", result.RequeueAfter)
		}
		now = now.Add(newsOfPods)
	}
	if n := tries.Load(); n < 2 || n > 10 {
		t.Errorf("it was tried %d times in 10 s", n)
	}
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
		t.Fatal(err)
	}
	if c := trueCondition(&job.Status); c == nil || c.Type != v1alpha1.ConditionPending || c.Reason != v1alpha1.ReasonInvalid {
		t.Errorf("the job's state is %+v", c)
	}
}

// TestEndedJobThatItsQueueHolds: a Job that was ended, and that its queue suspends
// before the Job controller has acted, is deleted.
func TestEndedJobThatItsQueueHolds(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	there := runningJob(now, 1000)
	b, yes, one := there[1].(*batchv1.Job), true, int64(1)
	b.Annotations = map[string]string{names.Group + "/cause": `{"reason":"RankExited","rank":0}`}
	b.Spec.Suspend, b.Spec.ActiveDeadlineSeconds, b.Status.StartTime = &yes, &one, nil
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there[:2]...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }}
	for range 3 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "hpc", Name: "cg"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); !apierrors.IsNotFound(err) {
		t.Errorf("the suspended Job of a failed MPIJob stays in its queue: %v", err)
	}
}
