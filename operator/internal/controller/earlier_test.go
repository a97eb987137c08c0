package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestPodsOfAnEarlierJob: an MPIJob that is deleted and created again starts, whatever
// the state of the earlier one's pods.
func TestPodsOfAnEarlierJob(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	for state, change := range map[string]func(p *corev1.Pod){
		"running": func(*corev1.Pod) {},
		"going": func(p *corev1.Pod) {
			at, grace := metav1.NewTime(now.Add(20*time.Second)), int64(30)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = &at, &grace, []string{"batch.kubernetes.io/job-tracking"}
		},
		"failed": func(p *corev1.Pod) { p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodFailed, ended(3) },
		"succeeded": func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodSucceeded, ended(0)
		},
	} {
		for _, management := range []v1alpha1.PodManagement{v1alpha1.PodsManaged, v1alpha1.PodsExternal} {
			t.Run(string(management)+", "+state, func(t *testing.T) {
				all := runningJob(now.Add(-time.Minute), 1000)
				earlier, p := all[0].(*v1alpha1.MPIJob), all[2].(*corev1.Pod)
				p.Labels[names.LabelInject], p.Labels[names.LabelJobUID] = "true", string(earlier.UID)
				change(p)
				j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", UID: "9", Generation: 1, CreationTimestamp: metav1.NewTime(now)}}
				j.Spec = earlier.Spec
				j.Spec.PodManagement = management
				if s := begins(t, now, j, p); s == nil || s.Type != v1alpha1.ConditionPending {
					t.Errorf("it is %+v", s)
				}
			})
		}
	}
}

// TestPodsOfAnEarlierJobAreWaitedFor: while a pod of an earlier MPIJob of the same name
// ends, its host name resolves to it. No pod with that host name is made before it has
// ended.
func TestPodsOfAnEarlierJobAreWaitedFor(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for what, c := range map[string]struct {
		management v1alpha1.PodManagement
		change     func(p *corev1.Pod)
		waits      bool
	}{
		"it ends":                    {v1alpha1.PodsManaged, func(*corev1.Pod) {}, true},
		"it does not end":            {v1alpha1.PodsManaged, func(p *corev1.Pod) { at := metav1.NewTime(now.Add(-time.Minute)); p.DeletionTimestamp = &at }, false},
		"it has ended":               {v1alpha1.PodsManaged, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"it is of another attempt":   {v1alpha1.PodsManaged, func(p *corev1.Pod) { p.Labels[names.LabelAttempt] = "1" }, false},
		"it is of no Job":            {v1alpha1.PodsManaged, func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"pods have their own names":  {v1alpha1.PodsExternal, func(*corev1.Pod) {}, false},
		"it is younger than the job": {v1alpha1.PodsManaged, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(time.Second)) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			all := runningJob(now.Add(-time.Minute), 1000)
			p := all[2].(*corev1.Pod)
			at := metav1.NewTime(now.Add(20 * time.Second))
			p.DeletionTimestamp, p.Finalizers, p.Spec.NodeName = &at, []string{"batch.kubernetes.io/job-tracking"}, "node7"
			c.change(p)
			j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", UID: "9", Generation: 1, CreationTimestamp: metav1.NewTime(now)}}
			j.Spec = all[0].(*v1alpha1.MPIJob).Spec
			j.Spec.PodManagement = c.management
			s := begins(t, now, j, p)
			if s == nil || (s.Reason == v1alpha1.ReasonNameConflict) != c.waits || strings.Contains(s.Message, "cg-0-0 (node node7)") != c.waits {
				t.Errorf("it is %+v", s)
			}
		})
	}
}

// begins reconciles a job that has just been created in the presence of the objects
// there, and returns its state.
func begins(t *testing.T, now time.Time, j *v1alpha1.MPIJob, there ...client.Object) *metav1.Condition {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.New("1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(there, j)...).WithStatusSubresource(&v1alpha1.MPIJob{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Keys: oneKey{authority}, IssuerURL: "https://issuer.test/", Now: func() time.Time { return now }}
	name := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}
	for range 3 {
		if _, err := r.Reconcile(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		now = now.Add(5 * time.Second)
	}
	got := new(v1alpha1.MPIJob)
	if err := api.Get(t.Context(), name.NamespacedName, got); err != nil {
		t.Fatal(err)
	}
	for _, c := range got.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			return meta.FindStatusCondition(got.Status.Conditions, c.Type)
		}
	}
	return nil
}
