//go:build cluster

package apitest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// TestNothingOfOthersIsDeleted: if a Secret, ConfigMap or budget has the name of one of an
// MPIJob's objects, neither the end of the MPIJob nor a restart deletes it.
func TestNothingOfOthersIsDeleted(t *testing.T) {
	for _, c := range []struct{ policy, becomes string }{
		{`{"suspend":false,"disruption":"Prevented"}`, v1alpha1.ConditionFailed},
		{`{"suspend":false,"restartLimit":1}`, v1alpha1.ConditionRestarting},
	} {
		t.Run(c.becomes, func(t *testing.T) { nothingOfOthers(t, c.policy, c.becomes) })
	}
}

func nothingOfOthers(t *testing.T, policy, condition string) {
	ns := namespace(t)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.RunPolicy.Suspend = ptr(true) })
	becomes(t, j, v1alpha1.ConditionSuspended)
	// Objects of another owner replace the objects of the job's attempt.
	if err := api.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: meta(jobdoc.DocumentName(j, 0))}); err != nil {
		t.Fatal(err)
	}
	one := intstr.FromInt32(1)
	theirs := []client.Object{
		&corev1.Secret{ObjectMeta: meta("cg-0")}, &corev1.ConfigMap{ObjectMeta: meta(jobdoc.DocumentName(j, 0))},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta("cg"), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}}},
	}
	for _, o := range theirs {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":`+policy+`}}`))); err != nil {
		t.Fatal(err)
	}
	b := get(t, ns, "cg-0", &batchv1.Job{})
	eventually(t, func() error { // the other owner's budget does not delay the job
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if *b.Spec.Suspend {
			return errors.New("the Job is still suspended")
		}
		return nil
	})
	for _, p := range standInPods(t, b) {
		exits(t, p, 3, "")
	}
	becomes(t, j, condition)
	if condition == v1alpha1.ConditionRestarting {
		eventually(t, func() error { // the objects of the attempt are deleted
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(b), b); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the failed attempt's Job is there: %w", err)
			}
			return nil
		})
	}
	quiet(t, ns)
	for _, o := range theirs {
		now := o.DeepCopyObject().(client.Object)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil || now.GetUID() != o.GetUID() {
			t.Errorf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

// TestRestartsLeaveNothing: no document of an attempt remains after its restart.
func TestRestartsLeaveNothing(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, restarting)
	b := get(t, ns, "cg-0", &batchv1.Job{})
	get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{})
	for _, p := range standInPods(t, b) {
		exits(t, p, 3, "")
	}
	becomes(t, j, v1alpha1.ConditionRestarting)
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: jobdoc.DocumentName(j, 0)}, new(corev1.ConfigMap)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the document of the attempt that failed: %w", err)
		}
		return nil
	})
}

// TestDisruptionChanges: the budget of a running job is created and deleted with its
// disruption policy.
func TestDisruptionChanges(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, nil)
	standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	becomes(t, j, v1alpha1.ConditionRunning)
	set := func(to string) {
		if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"disruption":"`+to+`"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	set("Prevented")
	get(t, ns, "cg", &policyv1.PodDisruptionBudget{})
	set("Allowed")
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg"}, new(policyv1.PodDisruptionBudget)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the budget of a job that allows disruptions: %w", err)
		}
		return nil
	})
	quiet(t, ns)
}

// jobsWebhook returns a webhook that the API server calls for an operation on the Jobs of a
// namespace. If the webhook fails, the operation fails.
func jobsWebhook(ns string, operation admissionv1.OperationType) *admissionv1.ValidatingWebhookConfiguration {
	none, fail := admissionv1.SideEffectClassNone, admissionv1.Fail
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "broken-" + ns},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "broken.example.com", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr(int32(1)),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{operation},
				Rule:       admissionv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			}},
		}},
	}
}

// brokenFor makes the API server call a webhook that is down for an operation on the Jobs of a
// namespace. The webhook is registered until the caller deletes it.
func brokenFor(t *testing.T, ns string, operation admissionv1.OperationType) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	broken := jobsWebhook(ns, operation)
	broken.Webhooks[0].ClientConfig.URL = ptr("https://127.0.0.1:1/unreachable")
	if err := api.Create(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	return broken
}

// TestErrorOfTheServer: if an object cannot be created because a webhook is down, the job's
// status says so, and the job continues when the object can be created.
func TestErrorOfTheServer(t *testing.T) {
	ns := namespace(t)
	broken := brokenFor(t, ns, admissionv1.Create)
	eventually(t, func() error { // until the API server uses the webhook
		if err := dryJob(t, ns); err == nil || !strings.Contains(err.Error(), "broken.example.com") {
			return fmt.Errorf("the webhook is not asked: %w", err)
		}
		return nil
	})
	j := submit(t, ns, nil)
	eventually(t, func() error {
		now := get(t, ns, j.Name, &v1alpha1.MPIJob{})
		for _, c := range now.Status.Conditions {
			if c.Type == v1alpha1.ConditionPending && c.Reason == v1alpha1.ReasonAPIError && strings.Contains(c.Message, "broken.example.com") {
				return nil
			}
		}
		return fmt.Errorf("the status does not tell of the error: %+v", now.Status.Conditions)
	})
	if err := api.Delete(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	get(t, ns, "cg-0", &batchv1.Job{})
}

// TestEndThatIsRefused: if a job has failed and cannot be ended because a webhook for Jobs is
// down, its status says both, and the job ends when it can.
func TestEndThatIsRefused(t *testing.T) {
	for _, limit := range []int32{0, 1} {
		t.Run(fmt.Sprint(limit, " restarts"), func(t *testing.T) {
			ns := namespace(t)
			j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.RunPolicy.RestartLimit = &limit })
			b := get(t, ns, "cg-0", &batchv1.Job{})
			pods := standInPods(t, b)
			becomes(t, j, v1alpha1.ConditionRunning)
			operation := admissionv1.Update
			if limit > 0 {
				operation = admissionv1.Delete
			}
			broken := brokenFor(t, ns, operation)
			eventually(t, func() error { // until the API server uses the webhook
				err := api.Update(t.Context(), b.DeepCopy(), client.DryRunAll)
				if limit > 0 {
					err = api.Delete(t.Context(), b.DeepCopy(), client.DryRunAll)
				}
				if err == nil || !strings.Contains(err.Error(), "broken.example.com") {
					return fmt.Errorf("the webhook is not asked: %w", err)
				}
				return nil
			})
			exits(t, pods[1], 3, "")
			eventually(t, func() error {
				now := get(t, ns, j.Name, &v1alpha1.MPIJob{})
				for _, c := range now.Status.Conditions {
					if c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonAPIError && strings.Contains(c.Message, "broken.example.com") && strings.Contains(c.Message, "rank 2") &&
						now.Status.FirstFailure != nil && *now.Status.FirstFailure.Rank == 2 {
						return nil
					}
				}
				return fmt.Errorf("the status does not tell of failure and error: %+v, %+v", now.Status.Conditions, now.Status.FirstFailure)
			})
			if err := api.Delete(t.Context(), broken); err != nil {
				t.Fatal(err)
			}
			if limit == 0 {
				becomes(t, j, v1alpha1.ConditionFailed)
				return
			}
			eventually(t, func() error { // no other client deletes pods here
				return errors.Join(api.DeleteAllOf(t.Context(), new(corev1.Pod), client.InNamespace(ns), client.GracePeriodSeconds(0)), api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg-1"}, b))
			})
		})
	}
}

// TestDisruptionAllowedBetweenAttempts: if the disruption policy of a job is removed while the
// job waits for its restart, the job has no budget afterwards.
func TestDisruptionAllowedBetweenAttempts(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) {
		restarting(j)
		j.Spec.RunPolicy.Disruption = v1alpha1.DisruptionPrevented
	})
	for _, p := range standInPods(t, get(t, ns, "cg-0", &batchv1.Job{})) {
		exits(t, p, 3, "")
	}
	becomes(t, j, v1alpha1.ConditionRestarting)
	get(t, ns, "cg", &policyv1.PodDisruptionBudget{})
	if err := api.Patch(t.Context(), j, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"runPolicy":{"disruption":"Allowed"}}}`))); err != nil {
		t.Fatal(err)
	}
	if err := api.DeleteAllOf(t.Context(), new(corev1.Pod), client.InNamespace(ns), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	get(t, ns, "cg-1", &batchv1.Job{})
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cg"}, new(policyv1.PodDisruptionBudget)); !apierrors.IsNotFound(err) {
		t.Errorf("the budget of a job that allows disruptions: %v", err)
	}
}

// TestDocumentThatStays: a document of another identity whose deletion a finalizer delays is
// reported, and its deletion is not repeated.
func TestDocumentThatStays(t *testing.T) {
	ns := namespace(t)
	j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.ProfileName = "later" })
	becomes(t, j, v1alpha1.ConditionPending)
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: jobdoc.DocumentName(j, 0), Finalizers: []string{"example.com/stay"}}}
	c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, v1alpha1.Kind)}
	if err := api.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := api.Create(t.Context(), &v1alpha1.FabricProfile{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}, Spec: v1alpha1.FabricProfileSpec{WaitPolicy: "Block"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now := get(t, ns, "cg", &v1alpha1.MPIJob{})
		for _, c := range now.Status.Conditions {
			if c.Reason == v1alpha1.ReasonNameConflict && strings.Contains(c.Message, "names another identity") {
				return nil
			}
		}
		return fmt.Errorf("the status does not tell of it: %+v", now.Status.Conditions)
	})
	c.Finalizers = nil
	if err := api.Patch(t.Context(), c, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	get(t, ns, "cg-0", &batchv1.Job{})
}
