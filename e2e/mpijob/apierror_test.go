//go:build cluster

package mpijob

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/jobdoc"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
	"github.com/outrigger-hpc/outrigger/e2e/harness/pki"
)

// A webhook of the site refuses Jobs with 400, for example because it requires a label: the
// MPIJob quotes its message, the job document is kept, and the job runs when the webhook is
// removed.
func TestWebhookThatRefuses(t *testing.T) {
	ns := restricted(t)
	const words = "no cost centre: add the label example.com/cost-centre"
	site := webhookForJobs(ns, admissionv1.WebhookClientConfig{
		Service: &admissionv1.ServiceReference{Namespace: ns, Name: "site"}, CABundle: refuser(t, ns, http.StatusBadRequest, words),
	})
	refusedUntilGone(t, site, words)
}

// refuser runs a webhook in a pod behind the Service "site", and returns the CA of its
// certificate.
func refuser(t *testing.T, ns string, code int, words string) []byte {
	t.Helper()
	authority, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Server("site", []string{"site." + ns + ".svc"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec := example(ns, "site", "probe").Spec.Template.Spec
	spec.TopologySpreadConstraints = nil
	spec.SecurityContext.FSGroup = new(int64(1000))
	spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "site", DefaultMode: new(int32(0o440))}}}}
	app := &spec.Containers[0]
	app.Image, app.Command = lab.Image(harness.Probe), nil
	app.Args = []string{"refuse", ":8443", "/keys/tls.crt", "/keys/tls.key", fmt.Sprint(code), words}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys", ReadOnly: true}}
	app.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8443)}}}
	meta := metav1.ObjectMeta{Namespace: ns, Name: "site", Labels: map[string]string{"app": "site"}}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: meta.Labels, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(8443)}}}},
		&corev1.Pod{ObjectMeta: meta, Spec: spec},
	} {
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	kubectl(t, "wait", "-n", ns, "pod/site", "--for=condition=Ready", "--timeout=150s")
	return authority.CA()
}

// webhookForJobs returns the configuration of a webhook that is called before a Job of the
// namespace is created.
func webhookForJobs(ns string, at admissionv1.WebhookClientConfig) *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "site-" + ns},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "site.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
			FailurePolicy: new(admissionv1.Fail), TimeoutSeconds: new(int32(5)), ClientConfig: at,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
			}},
		}},
	}
}

// refusedUntilGone runs a job while a webhook makes the API server refuse Jobs with this
// message. When the webhook is removed, the job runs with its earlier document.
func refusedUntilGone(t *testing.T, w *admissionv1.ValidatingWebhookConfiguration, words string) {
	t.Helper()
	ns := w.Webhooks[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName]
	if err := api.Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	removed := false
	remove := func() {
		if !removed {
			kubectl(t, "delete", "validatingwebhookconfiguration", w.Name)
			removed = true
		}
	}
	defer remove() // or whatever comes after a test that has failed would fail, too
	// The webhook is in effect when the API server refuses a Job.
	eventually(t, func() error {
		if out, err := lab.Kubectl(t.Context(), "create", "job", "try", "-n", ns, "--image=x", "--dry-run=server").CombinedOutput(); err == nil || !strings.Contains(string(out), words) {
			return fmt.Errorf("a Job is taken, or refused by others: %s", out)
		}
		return nil
	})
	j := submit(t, example(ns, "later", "ring", "-rounds", "20"))
	eventually(t, func() error { return saying(t, j, v1alpha1.ConditionPending, v1alpha1.ReasonAPIError, words) })
	document := new(corev1.ConfigMap)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: jobdoc.DocumentName(j, 0)}, document); err != nil {
		t.Fatal(err)
	}
	remove()
	if s := becomes(t, j, v1alpha1.ConditionComplete).Status; deref(s.Restarts) > 0 || s.FirstFailure != nil {
		t.Errorf("an error of the API server is no failure of the job: %+v", s)
	}
	now := new(corev1.ConfigMap)
	if err := api.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: jobdoc.DocumentName(j, 0)}, now); err != nil || now.UID != document.UID {
		t.Errorf("the job document was made anew: %v", err)
	}
}

// While a webhook of another vendor that admits Jobs is down, the API server refuses Jobs.
func TestWebhookThatIsDown(t *testing.T) {
	ns := restricted(t)
	down := webhookForJobs(ns, admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: ns, Name: "absent"}})
	refusedUntilGone(t, down, "site.example.com")
}
