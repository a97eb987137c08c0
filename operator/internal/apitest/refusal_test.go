//go:build cluster

package apitest

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness/refusal"
)

// refuseJobs makes a webhook refuse an operation on the Jobs of a namespace until the webhook
// is deleted, and counts the calls of the webhook. It returns when try is refused, which shows
// that the API server uses the webhook.
func refuseJobs(t *testing.T, ns string, operation admissionv1.OperationType, code int, message string, try func() error) (*admissionv1.ValidatingWebhookConfiguration, *atomic.Int64) {
	t.Helper()
	asked := new(atomic.Int64)
	answer := refusal.Handler(code, message)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	w := jobsWebhook(ns, operation)
	w.Webhooks[0].ClientConfig = admissionv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	if err := api.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // until the API server uses the webhook
		if err := try(); err == nil || !strings.Contains(err.Error(), message) {
			return fmt.Errorf("the webhook is not asked: %w", err)
		}
		return nil
	})
	return w, asked
}

// TestRefusalOfAWebhook: a webhook's answer that is neither 403 nor 422 is reported as well.
// The operation is tried again at a cost that does not grow with the job: the document is
// created once, its authority stays the same, and no try sends more than a few kilobytes, even
// for a job of 4,096 pods.
func TestRefusalOfAWebhook(t *testing.T) {
	for _, code := range []int{http.StatusBadRequest, http.StatusInternalServerError} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			ns := namespace(t)
			const words = "no cost centre: add the label example.com/cost-centre"
			w, asked := refuseJobs(t, ns, admissionv1.Create, code, words, func() error { return dryJob(t, ns) })
			j := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Spec.Ranks, j.Spec.RanksPerPod = 524288, 128 })
			told := func() error {
				now := get(t, ns, j.Name, &v1alpha1.MPIJob{})
				for _, c := range now.Status.Conditions {
					if c.Type == v1alpha1.ConditionPending && c.Status == "True" && c.Reason == v1alpha1.ReasonAPIError && strings.Contains(c.Message, words) {
						return nil
					}
				}
				return fmt.Errorf("the status does not tell of the refusal: %+v", now.Status.Conditions)
			}
			eventually(t, told)
			first := get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{})
			tries, sent := asked.Load(), counted.sent.Load()
			eventually(t, func() error {
				if n := asked.Load() - tries; n < 4 {
					return fmt.Errorf("it was tried %d times", n)
				}
				return nil
			})
			if each := (counted.sent.Load() - sent) / (asked.Load() - tries); each > 32<<10 {
				t.Errorf("each try sends %d bytes", each)
			} else {
				t.Logf("each try sends %d bytes", each)
			}
			if err := told(); err != nil {
				t.Error(err)
			}
			if err := api.Delete(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			get(t, ns, "cg-0", &batchv1.Job{})
			now := get(t, ns, jobdoc.DocumentName(j, 0), &corev1.ConfigMap{})
			if diff := cmp.Diff(first.Data, now.Data); now.UID != first.UID || diff != "" {
				t.Errorf("the document was made anew:\n%s", diff)
			}
		})
	}
}

// TestHangingWebhookOfANamespace: a webhook for the Jobs of one namespace that does not answer
// does not prevent the start of jobs in another namespace.
func TestHangingWebhookOfANamespace(t *testing.T) {
	ns, other := namespace(t), namespace(t)
	asked, over := new(atomic.Int64), make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		<-over
	}))
	t.Cleanup(func() { close(over); server.Close() })
	w := jobsWebhook(ns, admissionv1.Create)
	w.Webhooks[0].TimeoutSeconds = ptr(int32(30))
	w.Webhooks[0].ClientConfig = admissionv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	if err := api.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Delete(context.Background(), w); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	const jobs = 64 // twelve of them at a time would take minutes
	for i := range jobs {
		submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name = fmt.Sprint("hangs-", i) })
	}
	eventually(t, func() error {
		if n := asked.Load(); n < 8 {
			return fmt.Errorf("the webhook was asked %d times", n)
		}
		return nil
	})
	j := submit(t, other, nil)
	get(t, other, j.Name+"-0", &batchv1.Job{})
	becomes(t, j, v1alpha1.ConditionPending)
}

// dryJob asks the API server in a dry run whether it accepts a Job.
func dryJob(t *testing.T, ns string) error {
	t.Helper()
	b := &batchv1.Job{}
	b.Namespace, b.Name = ns, "probe"
	b.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	b.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return api.Create(t.Context(), b, client.DryRunAll)
}
