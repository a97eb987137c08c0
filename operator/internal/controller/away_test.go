package controller

import (
	"context"
	"errors"
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

// TestAPIServerIsAway: while calls fail, a starting and a running job keep their
// states. Afterwards they continue, without a failure or a restart.
func TestAPIServerIsAway(t *testing.T) {
	for _, runs := range []bool{false, true} {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		there := runningJob(now, 100_000)
		j, p := there[0].(*v1alpha1.MPIJob), there[2].(*corev1.Pod)
		patience := int64(86_400)
		j.Spec.RunPolicy.PendingDeadlineSeconds = &patience
		want := v1alpha1.ConditionRunning
		if !runs {
			p.Status, want = corev1.PodStatus{Phase: corev1.PodPending}, v1alpha1.ConditionPending
		}
		j.Status.Conditions = []metav1.Condition{{Type: want, Status: metav1.ConditionTrue, Reason: "PodsStarting", LastTransitionTime: metav1.NewTime(now)}}
		scheme, err := Scheme()
		if err != nil {
			t.Fatal(err)
		}
		refused, away := errors.New("dial tcp 10.0.0.1:443: connect: connection refused"), true
		fails := func() error {
			if away {
				return refused
			}
			return nil
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).
			WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, how ...client.CreateOption) error {
					return errors.Join(fails(), skip(away, func() error { return api.Create(ctx, o, how...) }))
				},
				Patch: func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, how ...client.PatchOption) error {
					return errors.Join(fails(), skip(away, func() error { return api.Patch(ctx, o, patch, how...) }))
				},
				SubResourcePatch: func(ctx context.Context, api client.Client, sub string, o client.Object, patch client.Patch, how ...client.SubResourcePatchOption) error {
					return errors.Join(fails(), skip(away, func() error { return api.SubResource(sub).Patch(ctx, o, patch, how...) }))
				},
			}).Build()
		// The caches still answer without the API server; reads past them fail.
		live := interceptor.NewClient(api, interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, how ...client.GetOption) error {
				return errors.Join(fails(), skip(away, func() error { return api.Get(ctx, key, o, how...) }))
			},
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, how ...client.ListOption) error {
				return errors.Join(fails(), skip(away, func() error { return api.List(ctx, list, how...) }))
			},
		})
		r := &Reconciler{Client: api, Live: live, Events: events.NewFakeRecorder(1000), Now: func() time.Time { return now }}
		look := func() {
			_, _ = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}) // the action is tried again
			now = now.Add(time.Minute)
		}
		for range 60 {
			look()
		}
		away = false
		for range 10 {
			look()
		}
		got := read(t, api, "cg", new(v1alpha1.MPIJob))
		if c := trueCondition(&got.Status); c == nil || c.Type != want || got.Status.FirstFailure != nil || got.Status.Restarts != nil {
			t.Errorf("runs %v: %+v, first failure %+v", runs, c, got.Status.FirstFailure)
		}
		if runs {
			continue
		}
		p = read(t, api, "cg-0-0", new(corev1.Pod))
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		if err := api.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		look()
		look()
		if c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status); c.Type != v1alpha1.ConditionRunning {
			t.Errorf("afterwards %s: %s", c.Type, c.Message)
		}
	}
}

// skip calls f, unless the API server is unavailable.
func skip(away bool, f func() error) error {
	if away {
		return nil
	}
	return f()
}
