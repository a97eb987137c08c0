//go:build cluster

package apitest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// mortal is the transport of an operator that is killed by a certain write: the write is
// carried out, its response is lost, and all later calls fail. A crash before a write is
// covered as the crash after the write before it. Writes of Events are not counted, because
// they change no state.
type mortal struct {
	next http.RoundTripper
	left atomic.Int64
	dead chan struct{}
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	left := m.left.Load()
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
		left = m.left.Add(-1)
	}
	if left < 0 || left == 0 && r.Method == http.MethodGet {
		return nil, errors.New("the operator is dead")
	}
	resp, err := m.next.RoundTrip(r)
	if left == 0 && r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
		close(m.dead)
	}
	return resp, err
}

// life plays a Job's controller and the kubelets for an MPIJob until the job has ended: the
// first attempt fails, the second one succeeds. It reads all its state from the API server, so
// that it continues regardless of which operator runs.
func life(ctx context.Context, t *testing.T, j *v1alpha1.MPIJob) {
	for ctx.Err() == nil {
		now := new(v1alpha1.MPIJob)
		if err := api.Get(ctx, client.ObjectKeyFromObject(j), now); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
		for _, c := range now.Status.Conditions {
			if c.Status == metav1.ConditionTrue && (c.Type == v1alpha1.ConditionComplete || c.Type == v1alpha1.ConditionFailed) {
				return
			}
		}
		for attempt := range 3 {
			if err := step(ctx, t, j, attempt); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// step performs the next step of an attempt.
func step(ctx context.Context, t *testing.T, j *v1alpha1.MPIJob, attempt int) error {
	b, pods := new(batchv1.Job), new(corev1.PodList)
	err := api.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: fmt.Sprintf("%s-%d", j.Name, attempt)}, b)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err := api.List(ctx, pods, client.InNamespace(j.Namespace), client.MatchingLabels{names.LabelJob: j.Name, names.LabelAttempt: fmt.Sprint(attempt)}); err != nil {
		return err
	}
	switch {
	case apierrors.IsNotFound(err):
		for i := range pods.Items {
			if err := api.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	case len(pods.Items) == 0:
		alike(t, j, attempt)
		standInPods(t, b)
	case pods.Items[0].Status.Phase == corev1.PodRunning && running(ctx, j):
		for i := range pods.Items {
			exits(t, &pods.Items[i], int32(3*(1-min(attempt, 1))), "")
		}
		if attempt > 0 {
			ends(t, b, batchv1.JobComplete)
		}
	}
	return nil
}

// running reports whether the operator has reported that all ranks run.
func running(ctx context.Context, j *v1alpha1.MPIJob) bool {
	now := new(v1alpha1.MPIJob)
	if err := api.Get(ctx, client.ObjectKeyFromObject(j), now); err != nil {
		return false // the caller asks again
	}
	return slices.ContainsFunc(now.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionRunning && c.Status == metav1.ConditionTrue
	})
}

// alike checks that the identity in an attempt's document is the one that the issuer signs
// for.
func alike(t *testing.T, j *v1alpha1.MPIJob, attempt int) {
	t.Helper()
	document := get(t, j.Namespace, jobdoc.DocumentName(j, int32(attempt)), &corev1.ConfigMap{})
	get(t, j.Namespace, jobdoc.ServiceName(j.Name), &corev1.Service{})
	d, err := bootstrap.Parse([]byte(document.Data[names.BootstrapFile]))
	if err != nil {
		t.Fatal(err)
	}
	if id := keys.ID(j.UID, int32(attempt)); d.Job.ID != id {
		t.Errorf("attempt %d: the document is about %s, the certificates about %s", attempt, d.Job.ID, id)
	}
}

// wellEnded checks the objects that remain of a job after life.
func wellEnded(t *testing.T, j *v1alpha1.MPIJob) {
	t.Helper()
	s := becomes(t, j, v1alpha1.ConditionComplete).Status
	if *s.Restarts != 1 || *s.Ranks.Succeeded != 4 || s.FirstFailure == nil || *s.FirstFailure.Attempt != 0 {
		t.Errorf("status %+v, ranks %+v", s, s.Ranks)
	}
	eventually(t, func() error {
		jobs, secrets := new(batchv1.JobList), new(corev1.SecretList)
		if err := errors.Join(api.List(t.Context(), jobs, client.InNamespace(j.Namespace)), api.List(t.Context(), secrets, client.InNamespace(j.Namespace))); err != nil {
			return err
		}
		if len(jobs.Items) != 1 || len(secrets.Items) != 0 {
			return fmt.Errorf("%d Jobs and %d Secrets are left, want 1 and none", len(jobs.Items), len(secrets.Items))
		}
		return nil
	})
}

func restarting(j *v1alpha1.MPIJob) { j.Spec.RunPolicy.RestartLimit = ptr(int32(3)) }

// TestKilledAtEveryStep kills the operator after each write of a job's life and starts another
// one: the job ends as it does without a crash.
func TestKilledAtEveryStep(t *testing.T) {
	alone(t)
	died := true
	for n := int64(1); died && !t.Failed(); n++ {
		t.Run(fmt.Sprint("write", n), func(t *testing.T) {
			j := submit(t, namespace(t), restarting)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			m := &mortal{dead: make(chan struct{})}
			m.left.Store(n)
			first, kill := context.WithCancel(ctx)
			if _, err := operateBy(first, func(next http.RoundTripper) http.RoundTripper { m.next = next; return m }); err != nil {
				t.Fatal(err)
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				life(ctx, t, j)
			}()
			select {
			case <-m.dead:
			case <-over:
				died = false // the whole life has fewer writes
			}
			kill() // how and how soon a dead operator returns does not matter
			done, err := operateBy(ctx, func(next http.RoundTripper) http.RoundTripper { return next })
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-over:
			case <-time.After(2 * time.Minute):
				t.Error("the job does not end")
			}
			wellEnded(t, j)
			stop()
			<-over
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		if n > 60 {
			t.Fatal("a job's life has more than 60 writes")
		}
	}
}

// TestTwoOperators: two operators at the same time do no harm to jobs. This happens if an
// operator has lost the lease of the leader and has not noticed it yet.
func TestTwoOperators(t *testing.T) {
	alone(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var ends []<-chan error
	for range 2 {
		done, err := operateBy(ctx, func(next http.RoundTripper) http.RoundTripper { return next })
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	var jobs []*v1alpha1.MPIJob
	for range 8 {
		jobs = append(jobs, submit(t, namespace(t), restarting))
	}
	for _, j := range jobs {
		life(ctx, t, j)
		wellEnded(t, j)
	}
	stop()
	for _, done := range ends {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
