//go:build cluster

package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// thief replaces a job's Job by a Job of its own just before the operator, which has not seen
// the replacement, changes or deletes it.
type thief struct {
	next  http.RoundTripper
	steal func() error

	once   sync.Once
	err    error
	struck chan struct{}
}

func (s *thief) RoundTrip(r *http.Request) (*http.Response, error) {
	change := r.Method == http.MethodPatch || r.Method == http.MethodDelete
	if change && strings.HasSuffix(r.URL.Path, "/jobs/cg-0") {
		s.once.Do(func() { s.err = s.steal(); close(s.struck) })
	}
	return s.next.RoundTrip(r)
}

// TestJobOfAStolenName: changes and deletions that the operator makes to the Job of a job that
// runs, is suspended, restarted or has ended, never affect another Job that has taken its
// name.
func TestJobOfAStolenName(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, j *v1alpha1.MPIJob, pods []*corev1.Pod){
		"suspended": func(t *testing.T, j *v1alpha1.MPIJob, _ []*corev1.Pod) {
			if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"suspend":true}}}`))); err != nil {
				t.Fatal(err)
			}
		},
		"over": func(t *testing.T, _ *v1alpha1.MPIJob, pods []*corev1.Pod) { exits(t, pods[1], 3, "") },
		"restarted": func(t *testing.T, j *v1alpha1.MPIJob, pods []*corev1.Pod) {
			if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"restartLimit":1}}}`))); err != nil {
				t.Fatal(err)
			}
			exits(t, pods[1], 3, "")
		},
	} {
		t.Run(name, func(t *testing.T) { stolenName(t, after) })
	}
}

func stolenName(t *testing.T, after func(*testing.T, *v1alpha1.MPIJob, []*corev1.Pod)) {
	alone(t)
	ns, theirs := namespace(t), new(batchv1.Job)
	th := &thief{struck: make(chan struct{})}
	th.steal = func() error {
		ours := new(batchv1.Job)
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg-0"}, ours); err != nil {
			return err
		}
		theirs.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "cg-0", Labels: maps.Clone(ours.Labels)}
		theirs.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		return errors.Join(api.Delete(t.Context(), ours, client.PropagationPolicy("Background")), api.Create(t.Context(), theirs))
	}
	ctx, stop := context.WithCancel(t.Context())
	done, err := operateBy(ctx, func(next http.RoundTripper) http.RoundTripper { th.next = next; return th })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	j := submit(t, ns, nil)
	pods := standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	becomes(t, j, v1alpha1.ConditionRunning)
	after(t, j, pods)
	<-th.struck
	if th.err != nil {
		t.Fatal(th.err)
	}
	eventually(t, func() error { // until the operator has seen the replacement
		now := get(t, ns, j.Name, &v1alpha1.MPIJob{})
		if text, _ := json.Marshal(now.Status); !strings.Contains(string(text), "cg-0 was deleted") && !strings.Contains(string(text), "exited") && !strings.Contains(string(text), "rank 2") {
			return fmt.Errorf("the status tells nothing: %s", text)
		}
		return nil
	})
	now := get(t, ns, "cg-0", &batchv1.Job{})
	if now.UID != theirs.UID || now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the operator has changed a Job that is not its own: %+v", now.ObjectMeta)
	}
}
