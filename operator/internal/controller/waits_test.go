package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// ring answers like sidecars whose ranks wait for each other in a ring.
type ring struct {
	ranks  int // number of ranks of the job
	each   int // number of ranks of a pod
	busy   int // rank that makes progress; -1: none
	silent string
	asked  atomic.Int64
}

func (r *ring) WaitsOf(_ context.Context, p *corev1.Pod, _ int) (ranks []why.Rank, err error) {
	r.asked.Add(1)
	if p.Name == r.silent {
		return nil, errors.New("no route")
	}
	var pod int
	if _, err := fmt.Sscan(p.Name, &pod); err != nil {
		return nil, err
	}
	for i := range r.each {
		n := pod*r.each + i
		x := why.Rank{Rank: n, Quiet: 1000, Waits: []why.Wait{{Kind: why.Recv, Peer: (n + 1) % r.ranks, Tag: uint64(n), Seconds: 1000}}}
		if n == r.busy {
			x.Quiet = 0
		}
		ranks = append(ranks, x)
	}
	return append(ranks, why.Rank{Rank: r.ranks + 5}), nil // a rank that the pod does not have
}

// hanging returns a job of many pods that has run for an hour.
func hanging(pods int) (*Reconciler, *ring, *verdict.Observation) {
	r := &ring{ranks: 4 * pods, each: 4, busy: -1}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Name: "cg", Namespace: "hpc", UID: types.UID("1")}}
	j.Spec.Ranks, j.Spec.RanksPerPod = int32(r.ranks), 4
	j.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunning, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	o := &verdict.Observation{Job: j, Now: now}
	for i := range pods {
		o.Pods = append(o.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{batchv1.JobCompletionIndexAnnotation: fmt.Sprint(i)}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	return &Reconciler{Waiters: r}, r, o
}

// TestHangOfManyRanks: the report about a hanging job of 10,000 ranks has few lines. A
// job that makes progress costs one request per check, and a job with an unknown rank
// is not reported as hanging.
func TestHangOfManyRanks(t *testing.T) {
	const pods = 2500
	r, jobs, o := hanging(pods)
	next := r.watchWaits(t.Context(), o)
	if o.Waits == nil || !o.Waits.Stuck || len(o.Waits.Lines) > 40 || !strings.HasPrefix(o.Waits.Lines[0], "ranks 0 to 9999 wait for each other in a ring") {
		t.Errorf("%+v", o.Waits)
	}
	if n := jobs.asked.Load(); n != pods || next != lookMax {
		t.Errorf("%d questions, the next in %v", n, next)
	}
	o.Waits = nil
	o.Now = o.Now.Add(lookMax / 2)
	if next := r.watchWaits(t.Context(), o); next != lookMax/2 || o.Waits != nil || jobs.asked.Load() != pods {
		t.Errorf("a look before its time: %d questions, the next in %v", jobs.asked.Load(), next)
	}

	r, jobs, o = hanging(pods)
	jobs.busy = 2
	if r.watchWaits(t.Context(), o); o.Waits == nil || o.Waits.Stuck || jobs.asked.Load() != 1 {
		t.Errorf("a job that works: %+v, by %d questions", o.Waits, jobs.asked.Load())
	}
	r, jobs, o = hanging(pods)
	jobs.silent = "2000"
	if r.watchWaits(t.Context(), o); o.Waits != nil {
		t.Errorf("a pod is silent: %+v", o.Waits)
	}
	if r.explain(t.Context(), o); o.Waits == nil || o.Waits.Stuck || o.Waits.Lines[len(o.Waits.Lines)-1] != "of other ranks nothing is known" {
		t.Errorf("%+v", o.Waits)
	}
}

// TestHangsAreTakenInTurn: checks of hanging jobs leave workers for other jobs.
func TestHangsAreTakenInTurn(t *testing.T) {
	var w watch
	now := time.Unix(1000, 0)
	for i := range looksAtOnce {
		if may, _ := w.begin(types.NamespacedName{Name: fmt.Sprint(i)}, lookMax, now); !may {
			t.Fatalf("look %d is refused", i)
		}
	}
	if may, next := w.begin(types.NamespacedName{Name: "one more"}, lookMax, now); may || next != lookMin {
		t.Errorf("one look too many: %v, again in %v", may, next)
	}
	w.end()
	if may, next := w.begin(types.NamespacedName{Name: "one more"}, lookMin, now); !may || next != lookMin {
		t.Errorf("a look in its turn: %v, again in %v", may, next)
	}
}

// mute does not answer requests until it is allowed to.
type mute struct {
	asked atomic.Int64
	let   chan struct{}
}

func (m *mute) WaitsOf(ctx context.Context, _ *corev1.Pod, _ int) ([]why.Rank, error) {
	m.asked.Add(1)
	select {
	case <-m.let:
	case <-ctx.Done():
	}
	return nil, errors.New("no route")
}

// TestManyDeadlinesAtOnce: jobs whose deadlines pass at the same time, and whose pods
// do not answer, take only a part of the workers.
func TestManyDeadlinesAtOnce(t *testing.T) {
	r, _, o := hanging(1)
	m := &mute{let: make(chan struct{})}
	r.Waiters = m
	const jobs = 8
	done := make(chan struct{})
	for range jobs {
		own := *o
		go func() {
			r.explain(t.Context(), &own)
			done <- struct{}{}
		}()
	}
	for range jobs - looksAtOnce {
		select {
		case <-done:
		case <-time.After(waitsTime): // the first requests have been cancelled by then
			t.Fatalf("%d workers wait for pods", m.asked.Load())
		}
	}
	close(m.let)
	for range looksAtOnce {
		<-done
	}
	if n := m.asked.Load(); n != looksAtOnce {
		t.Errorf("%d jobs were asked, want %d", n, looksAtOnce)
	}
	if r.watch.under != 0 {
		t.Errorf("%d looks are under way for ever", r.watch.under)
	}
}

// TestLooksAreSharedByNamespaces: a namespace with more young jobs than slots
// alternates with others, and a namespace that does not wait any more does not block
// others.
func TestLooksAreSharedByNamespaces(t *testing.T) {
	var w watch
	now := time.Unix(1000, 0)
	busy := 0
	look := func(namespace string) bool {
		if namespace == "many" {
			busy++
			namespace += "/" // another job at each step
		}
		name, _, _ := strings.Cut(namespace, "/")
		may, _ := w.begin(types.NamespacedName{Namespace: name, Name: fmt.Sprint(busy)}, lookMin, now)
		return may
	}
	for i := range looksAtOnce {
		if !look("many") {
			t.Fatalf("no other namespace waits, and check %d is refused", i)
		}
	}
	for _, waits := range []string{"few", "many", "other"} {
		now = now.Add(time.Millisecond)
		if look(waits) {
			t.Fatalf("a third look is under way, for %s", waits)
		}
	}
	for i, want := range []string{"few", "many", "other"} {
		now = now.Add(lookMin)
		w.end()
		var got []string
		for _, asks := range []string{"many", "other", "few"} { // the first job asks first
			if look(asks) {
				got = append(got, asks)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Fatalf("look %d is for %v, want %s", i, got, want)
		}
	}
	now = now.Add(2 * queuedFor)
	w.end()
	if !look("many") {
		t.Error("a look is kept for jobs that do not ask any more")
	}
}
