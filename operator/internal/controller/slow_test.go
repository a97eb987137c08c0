package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// oneKey is a Keys that returns the same authority for all jobs.
type oneKey struct{ authority *pki.Authority }

func (k oneKey) ID(types.UID, int32) string               { return "1" }
func (k oneKey) Authority(string) (*pki.Authority, error) { return k.authority, nil }
func (k oneKey) CA() ([]byte, error)                      { return k.authority.CA(), nil }

// office is an operator with its workers and its queue, on an API server with a slow
// webhook.
type office struct {
	api    client.WithWatch
	queue  workqueue.TypedDelayingInterface[ctrl.Request]
	under  atomic.Int64 // number of calls that wait for the webhook
	most   atomic.Int64
	putOff atomic.Int64 // number of reconciliations that found no slot
}

// webhookTime is the maximum time that an API server waits for a webhook.
const webhookTime = 30 * time.Second

// opens starts an operator in a synctest bubble. takes returns how long the webhook
// takes for an object of a namespace; more than webhookTime means that it does not
// answer.
func opens(t *testing.T, workers int, takes func(namespace string) time.Duration) *office {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.New("1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{queue: workqueue.NewTypedDelayingQueue[ctrl.Request]()}
	admit := func(ctx context.Context, namespace string) error {
		for n := o.under.Add(1); n > o.most.Load(); {
			o.most.Store(n)
		}
		defer o.under.Add(-1)
		asks := takes(namespace)
		select {
		case <-time.After(min(asks, webhookTime)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if asks > webhookTime {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		}
		return nil
	}
	o.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.MPIJob{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, next client.WithWatch, object client.Object, how ...client.CreateOption) error {
			if _, ours := object.(*v1alpha1.MPIJob); !ours {
				if err := admit(ctx, object.GetNamespace()); err != nil {
					return err
				}
			}
			return next.Create(ctx, object, how...)
		}}).Build()
	r := &Reconciler{Client: o.api, Live: o.api, Events: events.NewFakeRecorder(10_000), Keys: oneKey{authority}, IssuerURL: "https://issuer.test/", Now: time.Now}
	r.slow.limiter.most = slowSlots(workers)
	var all sync.WaitGroup
	for range workers + r.slow.limiter.most {
		all.Go(func() {
			for {
				req, over := o.queue.Get()
				if over {
					return
				}
				result, err := r.Reconcile(t.Context(), req)
				o.queue.Done(req)
				switch {
				case err != nil:
					o.queue.AddAfter(req, time.Second)
				case result.RequeueAfter > 0:
					if result.RequeueAfter >= slowAgain && result.RequeueAfter < 2*slowAgain {
						o.putOff.Add(1)
					}
					o.queue.AddAfter(req, result.RequeueAfter)
				}
			}
		})
	}
	t.Cleanup(func() { o.queue.ShutDown(); all.Wait() })
	return o
}

// submit makes jobs and adds them to the queue.
func (o *office) submit(t *testing.T, namespace string, jobs int) {
	t.Helper()
	o.submitFrom(t, namespace, 0, jobs)
}

// submitFrom is like submit, with jobs numbered from first.
func (o *office) submitFrom(t *testing.T, namespace string, first, jobs int) {
	t.Helper()
	for i := first; i < jobs; i++ {
		j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("cg", i), Generation: 1, UID: types.UID(fmt.Sprint(namespace, i))}}
		j.CreationTimestamp = metav1.Now()
		j.Spec.Ranks, j.Spec.RanksPerPod = 2, 1
		j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "i", Command: []string{"cg"}}}
		if err := o.api.Create(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		o.queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(j)})
	}
}

// begun returns how many jobs of a namespace have started.
func (o *office) begun(t *testing.T, namespace string) int {
	t.Helper()
	all := new(batchv1.JobList)
	if err := o.api.List(t.Context(), all, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	return len(all.Items)
}

// TestHangingWebhookOfANamespace: any number of jobs in one or several namespaces whose
// webhook does not answer leaves workers for other namespaces.
func TestHangingWebhookOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opens(t, 8, func(namespace string) time.Duration {
			if namespace == "hpc" {
				return time.Millisecond
			}
			return time.Hour
		})
		for i := range 3 {
			o.submit(t, fmt.Sprint("hanging-", i), 100)
		}
		time.Sleep(time.Minute)
		o.submit(t, "hpc", 20)
		time.Sleep(2 * slowAfter)
		synctest.Wait()
		if n := o.begun(t, "hpc"); n != 20 {
			t.Errorf("%d of 20 jobs have begun while other namespaces hang", n)
		}
		if n := o.under.Load(); n > 4 {
			t.Errorf("%d calls wait for a webhook that does not answer", n)
		}
	})
}

// TestHangingWebhooksOfManyNamespaces: jobs of many namespaces whose webhooks do not
// answer are tried with exponential back-off, and do not take all workers even if their
// tries come together.
func TestHangingWebhooksOfManyNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 8
		o := opens(t, workers, func(string) time.Duration { return time.Hour })
		for i := range 2 * workers {
			o.submit(t, fmt.Sprint("hanging-", i), 1)
		}
		time.Sleep(time.Minute) // all namespaces are known as slow by then
		o.most.Store(0)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if n := o.most.Load(); n == 0 || n > int64(slowSlots(workers)) {
			t.Errorf("%d calls at once wait for webhooks that do not answer, want 1 to %d", n, slowSlots(workers))
		}
	})
}

// TestWebhookAnswersAgain: soon after a webhook answers again, the jobs of its
// namespace can use all workers.
func TestWebhookAnswersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := atomic.Bool{}
		hangs.Store(true)
		o := opens(t, 8, func(string) time.Duration {
			if hangs.Load() {
				return time.Hour
			}
			return 50 * time.Millisecond
		})
		o.submit(t, "hpc", 1)
		time.Sleep(webhookTime + time.Second)
		hangs.Store(false)
		time.Sleep(webhookTime + slowSoon) // the first try after the hang, and the following ones
		if n := o.begun(t, "hpc"); n != 1 {
			t.Fatalf("%d of 1 job has begun", n)
		}
		o.submitFrom(t, "hpc", 1, 100)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := o.begun(t, "hpc"); n != 100 || o.putOff.Load() > 0 || o.most.Load() < 8 {
			t.Errorf("%d of 100 jobs have begun, %d looks were put off, at most %d calls at once", n, o.putOff.Load(), o.most.Load())
		}
	})
}

// TestHangIsOfItsCall: answered calls of another kind, or late answers, do not end the
// slow state of a namespace; and a namespace whose webhook answers only sometimes still
// needs slots.
func TestHangIsOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(Reconciler)
		r.slow.limiter.most = 4
		look := func(what string, takes time.Duration) (placed bool) {
			l, ok := r.slow.begin("hpc")
			if !ok {
				t.Fatal("there is no place")
			}
			defer l.release()
			placed = l.hasSlot
			_ = r.write(context.WithValue(t.Context(), turnKey{}, l), what, func(context.Context) error { time.Sleep(takes); return nil })
			return placed
		}
		const long = slowAfter + time.Second
		for i, c := range []struct {
			what          string
			takes, before time.Duration
			placed        bool
		}{
			{"create Job", 0, 0, false},
			{"create Job", long, 0, false},
			{"patch status", 0, slowSoon, true},
			{"patch status", 0, slowSoon, true},
			{"create Job", long, 0, true},
			{"create Job", 0, slowSoon, true}, // answered, long after the last slow call
			{"create Job", long, 0, false},
			{"create Job", 0, 0, true}, // answered at once
			{"create Job", 0, slowSoon / 2, true},
			{"create Job", 0, slowSoon / 2, false},
			{"create Job", long, 0, false},
			{"patch status", 0, slowFor, false},
		} {
			time.Sleep(c.before)
			if got := look(c.what, c.takes); got != c.placed {
				t.Errorf("look %d, %s: it takes a place: %v", i, c.what, got)
			}
		}
	})
}

// TestSlowWebhookOfANamespace: a namespace with a slow webhook that answers gets its
// jobs although the webhook of another namespace hangs.
func TestSlowWebhookOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opens(t, 8, func(namespace string) time.Duration {
			if namespace == "slow" {
				return 2 * slowAfter
			}
			return time.Hour
		})
		o.submit(t, "hanging", 100)
		o.submit(t, "slow", 4)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := o.begun(t, "slow"); n != 4 {
			t.Errorf("%d of 4 jobs have begun", n)
		}
	})
}

// TestManyJobsOfANamespace: hundreds of jobs of one namespace with calls of normal
// duration use all workers, and none is delayed.
func TestManyJobsOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := opens(t, 8, func(string) time.Duration { return 50 * time.Millisecond })
		o.submit(t, "hpc", 300)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := o.begun(t, "hpc"); n != 300 || o.putOff.Load() > 0 || o.most.Load() < 8 {
			t.Errorf("%d of 300 jobs have begun, %d looks were put off, at most %d calls at once", n, o.putOff.Load(), o.most.Load())
		}
	})
}

// TestGivenUpStatus: a write of a status that was cancelled because there was no slot
// returns errGivenUp, and not an earlier error.
func TestGivenUpStatus(t *testing.T) {
	r, j := &Reconciler{Now: time.Now}, new(v1alpha1.MPIJob)
	down := apierrors.NewInternalError(errors.New("failed calling webhook"))
	if err := r.unwritten(t.Context(), j, down, time.Now()); !errors.Is(err, down) || !errors.As(err, new(*unwritten)) {
		t.Errorf("a refusal is %v", err)
	}
	if err := r.unwritten(t.Context(), j, errGivenUp, time.Now()); !errors.Is(err, errGivenUp) || errors.As(err, new(*unwritten)) {
		t.Errorf("what was given up is %v", err)
	}
}
