package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// delayed records the requests that are added with a delay.
type delayed struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	jobs map[reconcile.Request]int
}

func (d *delayed) AddAfter(r reconcile.Request, after time.Duration) {
	if after == newsOfPods {
		d.jobs[r]++
	}
}

// TestNewsOfPodsAreGathered: changes of a job's pods enqueue the job with a delay, so
// that the queue makes one reconciliation of all changes within it.
func TestNewsOfPodsAreGathered(t *testing.T) {
	q := &delayed{jobs: map[reconcile.Request]int{}} // adding without a delay panics
	var gone int
	h := gathered(func(*corev1.Pod) { gone++ })
	for i := range 10 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: fmt.Sprint("p", i), Labels: map[string]string{names.LabelJob: "cg"}}}
		h.Create(t.Context(), event.CreateEvent{Object: p}, q)
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: p, ObjectNew: p}, q)
		h.Delete(t.Context(), event.DeleteEvent{Object: p}, q)
	}
	h.Create(t.Context(), event.CreateEvent{Object: new(corev1.Pod)}, q) // a pod of no job
	job := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "hpc", Name: "cg"}}
	if gone != 10 {
		t.Errorf("told of %d pods that have gone, want 10", gone)
	}
	if len(q.jobs) != 1 || q.jobs[job] != 40 {
		t.Errorf("%v, want 40 times %v", q.jobs, job)
	}
}
