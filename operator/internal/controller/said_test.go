package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/verdict"
)

// TestFailureOf: the answer of a sidecar is checked like a termination message.
func TestFailureOf(t *testing.T) {
	report := "{}"
	serve(t, "127.0.7.9", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/report" {
			_, _ = io.WriteString(w, report)
		}
	})
	for answer, want := range map[string]string{
		`{"pod":1}`:        "<nil>",
		`{"failure":null}`: "<nil>",
		`{"failure":{"rank":3,"code":0,"reason":"` + podlife.TextVanished + `","time":"2026-01-01T00:00:00Z"}}`:               "3 1 RankVanished " + podlife.TextVanished,
		`{"failure":{"rank":4294967295,"code":9,"reason":"` + strings.Repeat("x", 5000) + `","time":"2026-01-01T00:00:00Z"}}`: "-1 9 JobFailed " + strings.Repeat("x", 1021) + podlife.TextCut,
		`{"failure":{"rank":4294967294,"code":9,"reason":"x","time":"2026-01-01T00:00:00Z"}}`:                                 "error",
		`{"failure":{"rank":3,"code":9,"reason":"x"}}`:                                                                        "error",
		`{"failure":7}`: "error",
		``:              "error",
	} {
		a, got := NewAsker(), "<nil>"
		report = answer
		switch f, err := a.FailureOf(t.Context(), pod("127.0.7.9")); {
		case err != nil:
			got = "error"
		case f != nil:
			got = fmt.Sprint(f.Rank, f.Code, " ", f.Reason, " ", f.Text)
		}
		if got != want {
			t.Errorf("%.80s: %.80s, want %.80s", answer, got, want)
		}
	}
	if _, err := NewAsker().FailureOf(t.Context(), pod("127.0.7.10")); err == nil {
		t.Error("an answer where nothing listens")
	}
}

// heardFrom returns the answers of sidecars, by pod.
type heardFrom struct {
	asked atomic.Int64
	of    func(ctx context.Context, p *corev1.Pod) (*podlife.Failure, error)
}

func (h *heardFrom) FailureOf(ctx context.Context, p *corev1.Pod) (*podlife.Failure, error) {
	h.asked.Add(1)
	return h.of(ctx, p)
}

// lasting returns a job whose ranks have ended while other containers keep its pods
// running.
func lasting(pods int) *verdict.Observation {
	_, _, o := hanging(pods)
	o.Job.Spec.LaunchMode = v1alpha1.LaunchContainer
	o.Job.Spec.PodManagement = v1alpha1.PodsExternal
	o.Job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver"}}
	for i, p := range o.Pods {
		p.UID = types.UID(fmt.Sprint(i))
		p.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(i)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "solver", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(o.Now)}}},
			{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}
	}
	return o
}

// TestSidecarsOfKeptPodsAreAsked: each sidecar is asked once, at the end of the job,
// and not if all slots for requests are taken.
func TestSidecarsOfKeptPodsAreAsked(t *testing.T) {
	const pods = 100
	h := &heardFrom{of: func(_ context.Context, p *corev1.Pod) (*podlife.Failure, error) {
		if p.UID == "7" {
			return nil, errors.New("no route")
		}
		return nil, nil
	}}
	r, o := &Reconciler{Failures: h}, lasting(pods)
	if said := r.sayings(t.Context(), o); len(said) != pods-1 || h.asked.Load() != pods {
		t.Errorf("%d answers to %d questions", len(said), h.asked.Load())
	}
	o.Pods[3].Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if said := r.sayings(t.Context(), o); said != nil || h.asked.Load() != pods {
		t.Errorf("%d answers while a rank works", len(said))
	}
	o = lasting(pods)
	for r.watch.spare() {
	}
	if said := r.sayings(t.Context(), o); said != nil || h.asked.Load() != pods {
		t.Errorf("%d answers without a place", len(said))
	}
}

// TestSilentKeptPods: requests to sidecars that never answer end at their timeout.
func TestSilentKeptPods(t *testing.T) {
	h := &heardFrom{of: func(ctx context.Context, _ *corev1.Pod) (*podlife.Failure, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	r := &Reconciler{Failures: h}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if said := r.sayings(ctx, lasting(100)); len(said) != 0 {
		t.Errorf("%d answers", len(said))
	}
}
