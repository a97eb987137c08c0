package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestEventsAreQuoted: after 10 s, the condition quotes the Job's events about pods
// that are not made, and the events of a pod that does not start.
func TestEventsAreQuoted(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	event := func(uid, kind, reason, message string, at time.Time) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "hpc", Name: uid + reason + message[:3] + at.Format("150405")},
			InvolvedObject: corev1.ObjectReference{UID: types.UID(uid)}, Type: kind, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at),
		}
	}
	said := []client.Object{
		event("2", "Warning", "FailedCreate", "an old refusal", now.Add(-time.Hour)),
		event("2", "Warning", "FailedCreate", "exceeded quota: gpus", now.Add(-time.Second)),
		event("2", "Normal", "SuccessfulCreate", "Created pod", now),
		event("3", "Normal", "Scheduled", "to a node", now),
		event("3", "Warning", "FailedMount", `secret "licence" not found`, now.Add(-time.Second)),
		event("3", "Warning", "Unhealthy", "Startup probe failed", now),
		event("9", "Warning", "FailedMount", "another's", now),
	}
	for _, missing := range []bool{true, false} {
		now := now
		there := runningJob(now, 1000)
		j, p := there[0].(*v1alpha1.MPIJob), there[2].(*corev1.Pod)
		j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPending, Status: metav1.ConditionTrue, Reason: "PodsStarting", LastTransitionTime: metav1.NewTime(now)}}
		p.Status, p.Spec.NodeName = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &metav1.Time{Time: now}}, "node"
		want := `pod cg-0-0: FailedMount: secret "licence" not found`
		if missing {
			there, want = there[:2], "1 of 1 pods are not made: FailedCreate: exceeded quota: gpus"
		}
		scheme, err := Scheme()
		if err != nil {
			t.Fatal(err)
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(there, said...)...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).
			WithIndex(&corev1.Pod{}, indexJob, labelIndex).
			WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
				return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
			}).
			WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string {
				return []string{o.(*corev1.Event).Reason}
			}).Build()
		r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }}
		look := func() (ctrl.Result, *metav1.Condition) {
			t.Helper()
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)})
			if err != nil {
				t.Fatal(err)
			}
			return result, trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status)
		}
		if result, c := look(); strings.Contains(c.Message, want) || result.RequeueAfter <= 0 || result.RequeueAfter > unclear {
			t.Errorf("at first: %q, the next look in %v", c.Message, result.RequeueAfter)
		}
		now = now.Add(unclear)
		for range 3 { // writes of a status have a minimum interval
			look()
			now = now.Add(time.Second)
		}
		if result, c := look(); !strings.Contains(c.Message, want) || result.RequeueAfter <= 0 || result.RequeueAfter > newsAgain {
			t.Errorf("missing %v: %q, want %q; the next look in %v", missing, c.Message, want, result.RequeueAfter)
		}
	}
}

// TestNewsOfAPull: of the events of a pod, the pull of an image is quoted, and not
// completed steps of other containers.
func TestNewsOfAPull(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	n := 0
	event := func(container, reason string, seconds int) client.Object {
		n++
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "hpc", Name: fmt.Sprint(n)},
			InvolvedObject: corev1.ObjectReference{UID: "3", FieldPath: "spec.containers{" + container + "}"}, Type: "Normal", Reason: reason, Message: container,
			LastTimestamp: metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)),
		}
	}
	for what, c := range map[string]struct {
		events []client.Object
		want   string
	}{
		"it is pulled, and another container starts": {[]client.Object{event("app", "Pulling", 3), event("outrigger", "Started", 3), event("outrigger", "Pulled", 3)}, "Pulling: app"},
		"it has been pulled":                         {[]client.Object{event("app", "Pulling", 3), event("app", "Pulled", 3), event("app", "Started", 4)}, ""},
		"another one is pulled":                      {[]client.Object{event("a", "Pulling", 1), event("a", "Pulled", 2), event("b", "Pulling", 2)}, "Pulling: b"},
		"a volume is waited for":                     {[]client.Object{event("", "Scheduled", 9), event("", "WaitForFirstConsumer", 1)}, "WaitForFirstConsumer:"},
	} {
		scheme, err := Scheme()
		if err != nil {
			t.Fatal(err)
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.events...).
			WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).Build()
		r := &Reconciler{Live: api}
		if got := r.newsOf(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", UID: "3"}}, "", ""); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestNewsOfAContainer: an event about one container is not quoted for another one,
// such as the sidecar, an init container, or a container that a webhook has added, even
// if the event is later.
func TestNewsOfAContainer(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	event := func(path string, seconds int) client.Object {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "hpc", Name: fmt.Sprint("e", seconds)},
			InvolvedObject: corev1.ObjectReference{UID: "3", FieldPath: path}, Type: "Warning", Reason: "FailedPostStartHook", Message: path,
			LastTimestamp: metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)),
		}
	}
	others := []client.Object{
		event("spec.containers{mesh}", 5), event("spec.initContainers{outrigger}", 6), event("spec.initContainers{main}", 7),
		event("spec.ephemeralContainers{main}", 8), event("spec.containers{main-2}", 9), event("", 10),
	}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		events []client.Object
		want   string
	}{
		"the application's, and later ones of others": {append(others, event("spec.containers{main}", 4)), "FailedPostStartHook: spec.containers{main}"},
		"others' only": {others, ""},
	} {
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.events...).
			WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
			WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).Build()
		r := &Reconciler{Live: api}
		if got := r.newsOf(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", UID: "3"}}, "FailedPostStartHook", "main"); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// waitingSidecar is a Starting whose sidecars wait for a certificate.
type waitingSidecar struct{ asked []string }

func (w *waitingSidecar) Awaits(_ context.Context, p *corev1.Pod) string {
	w.asked = append(w.asked, p.Name)
	return "the sidecar waits for a certificate"
}

// TestSidecarIsQuoted: what a sidecar that is not ready waits for is in the status of
// its job, and is asked again at intervals.
func TestSidecarIsQuoted(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	there := runningJob(now, 1000)
	j, p := there[0].(*v1alpha1.MPIJob), there[2].(*corev1.Pod)
	j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionPending, Status: metav1.ConditionTrue, Reason: "PodsStarting", LastTransitionTime: metav1.NewTime(now)}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	p.Status = corev1.PodStatus{
		Phase:                 corev1.PodRunning,
		InitContainerStatuses: []corev1.ContainerStatus{{Name: names.ContainerSidecar, State: running}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: j.Spec.Template.Spec.Containers[0].Name, State: running}},
	}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
	sidecars := new(waitingSidecar)
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }, Starting: sidecars}
	for range 30 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status); c.Type != v1alpha1.ConditionPending || !strings.Contains(c.Message, "ranks run; pod cg-0-0: the sidecar waits for a certificate") {
		t.Errorf("%s: %s", c.Type, c.Message)
	}
	if n := len(sidecars.asked); n != 2 {
		t.Errorf("asked %d times in 30 s", n)
	}
}

// unclear is the time after which events are first read.
const unclear = 10 * time.Second

// TestHookIsQuoted: the event of a postStart hook that failed is in the condition.
func TestHookIsQuoted(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	there := runningJob(now, 1000)
	j, p := there[0].(*v1alpha1.MPIJob), there[2].(*corev1.Pod)
	p.Status.Phase, p.Status.ContainerStatuses[0].State = corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, FinishedAt: metav1.NewTime(now)}}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "hpc", Name: "e"},
		InvolvedObject: corev1.ObjectReference{UID: p.UID, FieldPath: "spec.containers{" + j.Spec.Template.Spec.Containers[0].Name + "}"}, Type: "Warning", Reason: "FailedPostStartHook", Message: "PostStartHook failed", LastTimestamp: metav1.NewTime(now),
	}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(there, event)...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).
		WithIndex(&corev1.Pod{}, indexJob, labelIndex).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).Build()
	r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }}
	for range 10 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status)
	if c.Type != v1alpha1.ConditionFailed || c.Reason != "Terminated" || !strings.Contains(c.Message, "FailedPostStartHook: PostStartHook failed") {
		t.Errorf("%s: %s: %s", c.Type, c.Reason, c.Message)
	}
}
