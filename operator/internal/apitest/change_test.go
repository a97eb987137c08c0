//go:build cluster

package apitest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestRefusedChangeIsTold: if a change of a running job is refused, an Event reports the
// refusal, and the job's conditions still describe the state of the job.
func TestRefusedChangeIsTold(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(*v1alpha1.MPIJob) {})
	pods := standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	becomes(t, j, v1alpha1.ConditionRunning)
	one := intstr.FromInt32(1)
	theirs := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cg"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}},
	}
	if err := api.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"disruption":"Prevented"}}}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		list := new(eventsv1.EventList)
		if err := api.List(t.Context(), list, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "ChangeRefused" && e.Type == "Warning" && strings.Contains(e.Note, "PodDisruptionBudget cg") {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events tells of it", len(list.Items))
	})
	becomes(t, j, v1alpha1.ConditionRunning)
	// The change is not tried again at each change of a pod; pods may change many times a
	// second.
	before := counted.writes.Load()
	const changes = 10
	news(t, pods[0], changes)
	if n := counted.writes.Load() - before; n > changes {
		t.Errorf("%d calls during %d changes of a pod", n, changes)
	}
}

// news changes a pod several times, with enough time between two changes for the operator to
// see each of them.
func news(t *testing.T, p *corev1.Pod, changes int) {
	t.Helper()
	for i := range changes {
		p.Annotations = map[string]string{"change": fmt.Sprint(i)}
		if err := api.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * newsOfPods)
	}
}

// TestChangeThatFails: if a webhook fails on a change of a running job, the job's status
// reports the error and still describes the state of the job. The change is tried again with
// growing delays, regardless of how often the job's pods change, and is made once the webhook
// is gone.
func TestChangeThatFails(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	b := get(t, ns, "cg-0", &batchv1.Job{})
	pods := standInPods(t, b)
	becomes(t, j, v1alpha1.ConditionRunning)
	const words = "the cost centre's database does not answer"
	w, asked := refuseJobs(t, ns, admissionv1.Update, http.StatusInternalServerError, words, func() error {
		return api.Update(t.Context(), b.DeepCopy(), client.DryRunAll)
	})
	before := asked.Load()
	if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"suspend":true}}}`))); err != nil {
		t.Fatal(err)
	}
	told := func() error {
		now := get(t, ns, j.Name, &v1alpha1.MPIJob{})
		for _, c := range now.Status.Conditions {
			if c.Status == metav1.ConditionTrue && c.Type == v1alpha1.ConditionRunning && c.Reason == v1alpha1.ReasonAPIError && strings.Contains(c.Message, words) && strings.Contains(c.Message, "all 4 ranks have been started") {
				return nil
			}
		}
		return fmt.Errorf("the status does not tell of it: %+v", now.Status.Conditions)
	}
	eventually(t, told)
	const changes = 60
	news(t, pods[0], changes)
	// The changes take at least 6 s; the tries follow each other after 0.1, 0.2, 0.4 s and so
	// on.
	if n := asked.Load() - before; n < 2 || n > changes/3 {
		t.Errorf("it was tried %d times during %d changes of a pod", n, changes)
	}
	if err := told(); err != nil {
		t.Error(err)
	}
	if err := api.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if !*b.Spec.Suspend {
			return errors.New("the Job is not suspended")
		}
		return nil
	})
	now := becomes(t, j, v1alpha1.ConditionSuspended)
	for _, c := range now.Status.Conditions {
		if c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonAPIError {
			t.Errorf("what was done is told as an error still: %+v", c)
		}
	}
}

// newsOfPods is how long the operator gathers changes of pods before it reconciles the job.
const newsOfPods = 50 * time.Millisecond
