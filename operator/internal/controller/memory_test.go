package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// large returns a suspended job with a template of a megabyte.
func large() *v1alpha1.MPIJob {
	yes := true
	j := &v1alpha1.MPIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "cg", UID: "u", Generation: 3}}
	j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.RunPolicy.Suspend = 4, 2, &yes
	c := corev1.Container{Name: "solver", Image: "x", Command: []string{"/solver"}}
	for i := range 10_000 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("V", i), Value: strings.Repeat("v", 80)})
	}
	j.Spec.Template.Spec.Containers, j.Spec.Template.Spec.PriorityClassName = []corev1.Container{c}, "high"
	return j
}

// TestTemplatesAreLean: of a template of a megabyte, the cache keeps the fields that
// decisions need.
func TestTemplatesAreLean(t *testing.T) {
	j := large()
	j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(300))
	if _, err := lean(j); err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(j); err != nil || len(text) > 2000 {
		t.Errorf("%d bytes are in the cache, %v", len(text), err)
	}
	if s := &j.Spec.Template.Spec; s.Containers[0].Name != "solver" || s.PriorityClassName != "high" || s.TerminationGracePeriodSeconds == nil || *s.TerminationGracePeriodSeconds != 300 {
		t.Errorf("kept is %+v", s)
	}
	if _, err := lean(new(v1alpha1.MPIJob)); err != nil {
		t.Error(err)
	}
}

// TestJobsAreMadeOfWholeTemplates: a Job is made from the template on the API server,
// of the generation that was observed.
func TestJobsAreMadeOfWholeTemplates(t *testing.T) {
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pki.New("abc", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, behind := range []bool{false, true} {
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(large()).WithStatusSubresource(&v1alpha1.MPIJob{}).WithIndex(&corev1.Pod{}, indexJob, labelIndex).Build()
		cached := interceptor.NewClient(api, interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, into client.Object, how ...client.GetOption) error {
				err := api.Get(ctx, key, into, how...)
				if _, lerr := lean(into); lerr != nil {
					t.Error(lerr)
				}
				if j, ok := into.(*v1alpha1.MPIJob); ok && behind {
					j.Generation--
				}
				return err
			},
		})
		r := &Reconciler{Client: cached, Live: api, Events: events.NewFakeRecorder(100), Keys: oneKey{authority}, IssuerURL: "https://issuer.test/", Now: time.Now}
		for range 3 {
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "hpc", Name: "cg"}}); err != nil {
				t.Fatal(err)
			}
		}
		jobs := new(batchv1.JobList)
		if err := api.List(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		if behind {
			if len(jobs.Items) != 0 {
				t.Errorf("a Job was made of a template that was not observed")
			}
			continue
		}
		if len(jobs.Items) != 1 || len(jobs.Items[0].Spec.Template.Spec.Containers[0].Env) < 10_000 || jobs.Items[0].Spec.Template.Spec.PriorityClassName != "high" {
			t.Errorf("%d Jobs, or one without its whole template", len(jobs.Items))
		}
	}
}

// listed is a cache that records the options of its calls.
type listed struct {
	client.Reader
	how client.ListOptions
}

func (l *listed) List(_ context.Context, _ client.ObjectList, how ...client.ListOption) error {
	l.how.ApplyOptions(how)
	return nil
}

// TestMetricsCopyNothing: a scrape reads the cache's own objects.
func TestMetricsCopyNothing(t *testing.T) {
	cache := new(listed)
	registry := prometheus.NewRegistry()
	if _, err := NewMetrics(registry, cache, leading(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Gather(); err != nil {
		t.Fatal(err)
	}
	if cache.how.UnsafeDisableDeepCopy == nil || !*cache.how.UnsafeDisableDeepCopy {
		t.Error("a scrape copies all MPIJobs")
	}
}
