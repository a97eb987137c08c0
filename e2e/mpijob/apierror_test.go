//go:build cluster

package mpijob

import (
	"context"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// While somebody's webhook is down that is asked about Jobs, the API server has an
// error for who makes one: the MPIJob says so, keeps the document that it has made,
// and runs when the webhook is gone.
func TestWebhookThatIsDown(t *testing.T) {
	ns := restricted(t)
	broken := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "broken-" + ns},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "broken.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
			FailurePolicy: new(admissionv1.Fail), TimeoutSeconds: new(int32(1)),
			ClientConfig:      admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: ns, Name: "nobody"}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			}},
		}},
	}
	if err := api.Create(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	gone := false
	t.Cleanup(func() {
		if !gone {
			_ = api.Delete(context.WithoutCancel(t.Context()), broken) // the test has failed
		}
	})
	// The API server has heard of it when it refuses a Job.
	eventually(t, func() error {
		if out, err := lab.Kubectl(t.Context(), "create", "job", "try", "-n", ns, "--image=x", "--dry-run=server").CombinedOutput(); err == nil {
			return fmt.Errorf("a Job is taken: %s", out)
		}
		return nil
	})
	j := submit(t, example(ns, "later", "ring", "-rounds", "20"))
	eventually(t, func() error {
		return saying(t, j, v1alpha1.ConditionPending, v1alpha1.ReasonAPIError, "broken.example.com")
	})
	document := new(corev1.ConfigMap)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "later-0"}, document); err != nil {
		t.Fatal(err)
	}
	if err := api.Delete(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	gone = true
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; deref(s.Restarts) > 0 || s.FirstFailure != nil {
		t.Errorf("an error of the API server is no failure of the job: %+v", s)
	}
	now := new(corev1.ConfigMap)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "later-0"}, now); err != nil || now.UID != document.UID {
		t.Errorf("the job document was made anew: %v", err)
	}
}
