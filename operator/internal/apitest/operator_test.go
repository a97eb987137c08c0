//go:build cluster

package apitest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/controller"
	"github.com/outrigger-hpc/outrigger/operator/internal/desired"
	"github.com/outrigger-hpc/outrigger/operator/internal/issuer"
)

// calls counts the operator's calls to the API server, except watches.
type calls struct {
	next   http.RoundTripper
	writes atomic.Int64
	reads  atomic.Int64
	sent   atomic.Int64 // number of bytes

	mu   sync.Mutex
	made []string // method and path of each write and read
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(max(r.ContentLength, 0))
	switch {
	case r.Method != http.MethodGet:
		c.writes.Add(1)
	case r.URL.Query().Get("watch") == "":
		c.reads.Add(1)
	default:
		return c.next.RoundTrip(r)
	}
	c.mu.Lock()
	c.made = append(c.made, r.Method+" "+r.URL.Path)
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// count returns how many calls were made so far.
func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.made)
}

// since returns the calls after the first n, without those for another namespace than ns, and
// without reads of events, which the operator repeats while a job waits for an unknown reason.
func (c *calls) since(n int, ns string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for _, call := range c.made[n:] {
		if strings.HasPrefix(call, "GET ") && strings.HasSuffix(call, "/events") {
			continue
		}
		if !strings.Contains(call, "/namespaces/") || strings.Contains(call+"/", "/namespaces/"+ns+"/") {
			found = append(found, call)
		}
	}
	return found
}

// counted has the calls of the operator that all tests of this package share.
var counted calls

// keys are the keys of every operator of these tests.
var keys = func() *issuer.Keys {
	k, err := issuer.NewKeys([]byte("a secret that is as long as a real one"))
	if err != nil {
		panic(err)
	}
	return k
}()

// signer is the issuer of the operator that was started last; resident is the issuer of the
// operator that all tests share.
var signer, resident *issuer.Server

// registry has the metrics of the operator that was started last.
var registry *prometheus.Registry

// operate runs the operator in this process until ctx ends.
func operate(ctx context.Context) (<-chan error, error) {
	return operateBy(ctx, func(next http.RoundTripper) http.RoundTripper { counted.next = next; return &counted })
}

// operateBy runs an operator over a transport that the test provides.
func operateBy(ctx context.Context, wrap func(http.RoundTripper) http.RoundTripper) (<-chan error, error) {
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 400, 800
	own.Wrap(wrap)
	m, err := controller.NewManager(own, &controller.Serving{Metrics: "0", Health: "0"})
	if err != nil {
		return nil, err
	}
	registry = prometheus.NewRegistry()
	figures, err := controller.NewMetrics(registry, m.GetClient(), m.Elected(), false)
	if err != nil {
		return nil, err
	}
	r := &controller.Reconciler{
		Keys: keys, IssuerURL: "https://issuer.test" + issuer.Path,
		Client: m.GetClient(), Live: m.GetAPIReader(), Events: m.GetEventRecorder("outrigger-operator"),
		Options: desired.Options{Image: "outrigger.dev/outrigger-sidecar:test"}, Metrics: figures, Now: time.Now,
	}
	if err := r.Setup(ctx, m, 8); err != nil {
		return nil, err
	}
	signer = &issuer.Server{
		Keys: keys, Cache: m.GetClient(), Live: m.GetAPIReader(), Reviews: issuer.ReviewsBy(api), OfPlace: controller.OfPlace, CheckAddress: true, Log: slog.Default(),
	}
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	if !m.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.New("the operator's caches do not fill")
	}
	return done, nil
}

// submit creates an MPIJob of 4 ranks in 2 pods.
func submit(t *testing.T, ns string, change func(*v1alpha1.MPIJob)) *v1alpha1.MPIJob {
	t.Helper()
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cg"}}
	j.Spec.Ranks, j.Spec.RanksPerPod = 4, 2
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "solver", Image: "example/solver", Command: []string{"/solver"}}}
	if change != nil {
		change(j)
	}
	if err := api.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return j
}

// eventually waits until check returns nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// get reads an object from the API server.
func get[T client.Object](t *testing.T, ns, name string, into T) T {
	t.Helper()
	eventually(t, func() error { return api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, into) })
	return into
}

// becomes waits until one condition of the job is True.
func becomes(t *testing.T, j *v1alpha1.MPIJob, condition string) *v1alpha1.MPIJob {
	t.Helper()
	now := new(v1alpha1.MPIJob)
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(j), now); err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Status == metav1.ConditionTrue && c.Type == condition {
				return nil
			}
		}
		return fmt.Errorf("the job does not become %s: %+v", condition, now.Status)
	})
	return now
}

// standInPods creates the pods of a Job in the state Running, as the Job's controller and two
// kubelets would. No part of Kubernetes but the API server runs in these tests.
func standInPods(t *testing.T, b *batchv1.Job) []*corev1.Pod {
	t.Helper()
	b.Status.StartTime = &metav1.Time{Time: time.Now()}
	if err := api.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range *b.Spec.Completions {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: fmt.Sprintf("%s-%d", b.Name, i), Labels: map[string]string{}},
			Spec:       *b.Spec.Template.Spec.DeepCopy(),
		}
		for k, v := range b.Spec.Template.Labels {
			p.Labels[k] = v
		}
		p.Labels[batchv1.JobCompletionIndexAnnotation] = fmt.Sprint(i)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b, batchv1.SchemeGroupVersion.WithKind("Job"))}
		p.Spec.NodeName = fmt.Sprintf("node%d", i+1)
		if err := api.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: names.ContainerSidecar, Ready: true, State: running}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "solver", State: running}}
		if err := api.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	return pods
}

// exits sets the status of a pod whose application has ended.
func exits(t *testing.T, p *corev1.Pod, code int32, message string) {
	t.Helper()
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.Now()}}
	p.Status.ContainerStatuses[0].State = ended
	p.Status.InitContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	if err := api.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// ends sets the last condition of a Job, as its controller would.
func ends(t *testing.T, b *batchv1.Job, last batchv1.JobConditionType) {
	t.Helper()
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		before := map[batchv1.JobConditionType]batchv1.JobConditionType{batchv1.JobComplete: batchv1.JobSuccessCriteriaMet, batchv1.JobFailed: batchv1.JobFailureTarget}[last]
		now := metav1.Now()
		b.Status.Conditions = []batchv1.JobCondition{
			{Type: before, Status: corev1.ConditionTrue, LastTransitionTime: now}, {Type: last, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
		b.Status.Active, b.Status.Ready, b.Status.Terminating = 0, ptr(int32(0)), ptr(int32(0))
		if last == batchv1.JobComplete {
			b.Status.Succeeded, b.Status.CompletedIndexes, b.Status.CompletionTime = *b.Spec.Completions, fmt.Sprintf("0-%d", *b.Spec.Completions-1), &now
		}
		return api.Status().Update(t.Context(), b)
	})
}

func ptr[T any](v T) *T { return &v }
