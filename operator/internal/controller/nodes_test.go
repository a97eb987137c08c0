package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// nodeReader returns one node or an error, and counts its calls.
type nodeReader struct {
	client.Reader
	status corev1.ConditionStatus
	err    error
	reads  int
}

func (r *nodeReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.reads++
	n := o.(*corev1.Node)
	n.ObjectMeta = metav1.ObjectMeta{Name: key.Name}
	if r.status != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: r.status}}
	}
	return r.err
}

// TestNodeThatIsNotReady: a node is read at intervals while a verdict waits for a pod
// on it. A node that is not Ready, or is gone, counts as lost; a node that may not be
// read does not.
func TestNodeThatIsNotReady(t *testing.T) {
	for what, c := range map[string]struct {
		reader nodeReader
		lost   bool
	}{
		"ready":        {nodeReader{status: corev1.ConditionTrue}, false},
		"unreachable":  {nodeReader{status: corev1.ConditionUnknown}, true},
		"not ready":    {nodeReader{status: corev1.ConditionFalse}, true},
		"says nothing": {nodeReader{}, true},
		"gone":         {nodeReader{err: apierrors.NewNotFound(corev1.Resource("nodes"), "node1")}, true},
		"forbidden":    {nodeReader{err: apierrors.NewForbidden(corev1.Resource("nodes"), "node1", errors.New("no right"))}, false},
		"no answer":    {nodeReader{err: errors.New("connection refused")}, false},
	} {
		n, now := new(nodes), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		for range 10 { // 10 reconciliations, one per second
			if got := n.see(t.Context(), &c.reader, "node1", now).lost; got != c.lost {
				t.Errorf("%s: lost is %v", what, got)
			}
			p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1"}}
			if text := n.unclaimed(t.Context(), &c.reader, p, now); (text != "") != c.lost || strings.Contains(text, "there is no node node1") != (what == "gone") {
				t.Errorf("%s: a pod that no kubelet has begun: %q", what, text)
			}
			if p.Status.StartTime = new(metav1.Time); n.unclaimed(t.Context(), &c.reader, p, now) != "" {
				t.Errorf("%s: a pod that a kubelet has begun", what)
			}
			now = now.Add(time.Second)
		}
		if c.reader.reads != 2 {
			t.Errorf("%s: read %d times in 10 s", what, c.reader.reads)
		}
	}
	n, r := new(nodes), &nodeReader{status: corev1.ConditionTrue}
	for i := range 3 * nodesMax {
		n.see(t.Context(), r, time.Duration(i).String(), time.Now())
	}
	if len(n.seen) > nodesMax {
		t.Errorf("%d nodes are remembered", len(n.seen))
	}
}

// TestVerdictOfALostNode: the verdict on a pod whose node is not Ready does not wait
// for the end of its sidecar, which is not reported any more.
func TestVerdictOfALostNode(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]string{corev1.ConditionTrue: v1alpha1.ConditionRunning, corev1.ConditionUnknown: v1alpha1.ConditionFailed} {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		there := runningJob(now, 1000)
		j, p := there[0].(*v1alpha1.MPIJob), there[2].(*corev1.Pod)
		j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunning, Status: metav1.ConditionTrue, Reason: "RanksStarted", LastTransitionTime: metav1.NewTime(now)}}
		p.Spec.NodeName = "node1"
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: metav1.NewTime(now)}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: names.ContainerSidecar, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
		scheme, err := Scheme()
		if err != nil {
			t.Fatal(err)
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(there, node)...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
		r := &Reconciler{Client: api, Live: api, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }}
		for range 8 { // seconds, of the 33 that the pod may take to end
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
		}
		if c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status); c == nil || c.Type != want {
			t.Errorf("node Ready %s: %+v, want %s", status, c, want)
		}
	}
}

// TestVerdictWithoutNodes: an operator that may not read nodes, because it has rights
// in some namespaces only, waits for the end of a pod on a lost node at most as long as
// the pod may take to end.
func TestVerdictWithoutNodes(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := begun
	there := runningJob(now, 1000)
	j, p := there[0].(*v1alpha1.MPIJob), there[2].(*corev1.Pod)
	j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunning, Status: metav1.ConditionTrue, Reason: "RanksStarted", LastTransitionTime: metav1.NewTime(now)}}
	p.Spec.NodeName = "node1"
	p.Spec.TerminationGracePeriodSeconds = new(int64(7 * 24 * 3600)) // a pod may have any grace period
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: metav1.NewTime(now)}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: names.ContainerSidecar, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithStatusSubresource(&v1alpha1.MPIJob{}, &batchv1.Job{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
	asked := 0
	live := interceptor.NewClient(api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, how ...client.GetOption) error {
		if _, ok := o.(*corev1.Node); ok {
			asked++
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, key.Name, errors.New("no right"))
		}
		return c.Get(ctx, key, o, how...)
	}})
	r := &Reconciler{Client: api, Live: live, Events: events.NewFakeRecorder(100), Now: func() time.Time { return now }}
	for end := begun.Add(2 * time.Minute); now.Before(end); now = now.Add(time.Second) {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)}); err != nil {
			t.Fatal(err)
		}
		if c := trueCondition(&read(t, api, "cg", new(v1alpha1.MPIJob)).Status); c != nil && c.Type == v1alpha1.ConditionFailed {
			if asked == 0 {
				t.Error("it did not ask for the node")
			}
			return
		}
	}
	t.Errorf("no verdict %v after the rank's end", now.Sub(begun))
}
