//go:build cluster

package mpijob

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/e2e/harness"
)

// idle returns a job of two pods whose containers wait, as ranks that have not opened a
// session yet. A test can run commands in them.
func idle(ns, name string) *v1alpha1.MPIJob {
	j := example(ns, name, "probe")
	j.Spec.Ranks, j.Spec.RanksPerPod, j.Spec.LaunchMode = 2, 1, v1alpha1.LaunchContainer
	app := &j.Spec.Template.Spec.Containers[0]
	app.Image, app.Command = lab.Image(harness.Probe), nil
	return j
}

// tokenOf returns a token as the kubelet requests it: of a pod's service account, bound to the
// pod.
func tokenOf(t *testing.T, p *corev1.Pod, audience string) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{audience}, ExpirationSeconds: new(int64(600)),
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "default"}}
	if err := api.SubResource("token").Create(t.Context(), account, r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// signedAnew returns a token with other claims, signed by the cluster's key: as the API server
// would have issued it at another time.
func signedAnew(t *testing.T, token string, change func(claims map[string]any)) string {
	t.Helper()
	text, err := os.ReadFile(lab.TokenKey())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	var key *ecdsa.PrivateKey
	if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		t.Fatal(err)
	}
	given, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := given.Claims(key.Public(), &claims); err != nil {
		t.Fatal(err)
	}
	change(claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: given.Headers[0].KeyID}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(raw)
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

// ago moves the times of a token's claims into the past.
func ago(by time.Duration) func(map[string]any) {
	return func(claims map[string]any) {
		for _, name := range []string{"iat", "nbf", "exp"} {
			claims[name] = int64(claims[name].(float64)) - int64(by/time.Second)
		}
	}
}

// certified returns the issuer's answers to the tokens that a pod sends, by their names.
func certified(t *testing.T, p *corev1.Pod, tokens map[string]string) map[string]string {
	t.Helper()
	args := []string{"exec", "-n", p.Namespace, p.Name, "-c", "app", "--", "/usr/local/bin/probe", "certify", "https://outrigger-issuer." + release + ".svc/v1/certificate"}
	for name, token := range tokens {
		args = append(args, name+"="+token)
	}
	answers := map[string]string{}
	for line := range strings.Lines(kubectl(t, args...)) {
		name, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		answers[name] = said
	}
	return answers
}

// The issuer's decisions on a real cluster, with tokens of the API server: the sidecar's own
// token, sent from its pod's address, gets the pod's certificate. Refused are a token of the
// application, of another pod, of another job, of a deleted pod, an expired one, and one of a
// pod that only has the job's labels.
func TestTokensThatAreRefused(t *testing.T) {
	ours, theirs := restricted(t), restricted(t)
	j, other := submit(t, idle(ours, "tokens")), submit(t, idle(theirs, "tokens"))
	first, second, foreign := podOf(t, j, 0), podOf(t, j, 1), podOf(t, other, 0)

	own := tokenOf(t, first, names.TokenAudience)
	gone := first.DeepCopy()
	gone.ResourceVersion, gone.UID, gone.Name, gone.OwnerReferences = "", "", "gone", nil
	gone.Labels, gone.Spec.NodeName = nil, ""
	if err := api.Create(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	late := tokenOf(t, gone, names.TokenAudience)
	if err := api.Delete(t.Context(), gone, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	answers := certified(t, first, map[string]string{
		"own":         own,
		"application": "@/var/run/secrets/kubernetes.io/serviceaccount/token",
		"audience":    tokenOf(t, first, "https://kubernetes.default.svc"),
		"neighbour":   tokenOf(t, second, names.TokenAudience),
		"foreign":     tokenOf(t, foreign, names.TokenAudience),
		"gone":        late,
		"again":       signedAnew(t, own, ago(0)), // it is the time that is refused below, and not the hand
		"expired":     signedAnew(t, own, ago(11*time.Minute)),
		"early":       signedAnew(t, own, ago(-time.Hour)),
		"eternal":     signedAnew(t, own, func(c map[string]any) { delete(c, "exp") }),
		"moved": signedAnew(t, own, func(c map[string]any) { // a namespace in its claims that is not that of its account
			c["kubernetes.io"].(map[string]any)["namespace"] = theirs
		}),
		"tampered": own[:len(own)-8] + "AAAAAAAA",
	})
	for name, want := range map[string]string{
		"own":         "200 a certificate",
		"again":       "200 a certificate",
		"application": "401",
		"audience":    "401",
		"neighbour":   "403 the token of pod " + second.Name + " came from " + first.Status.PodIP,
		"foreign":     "403 the token of pod " + foreign.Name + " came from " + first.Status.PodIP,
		"gone":        "403 there is no pod gone",
		"expired":     "401",
		"early":       "401",
		"eternal":     "401",
		"moved":       "403",
		"tampered":    "401",
	} {
		if !strings.HasPrefix(answers[name], want) {
			t.Errorf("%s: %q, want %q", name, answers[name], want)
		}
	}
	if !strings.Contains(answers["expired"], "expired") {
		t.Errorf("who has an expired token is not told so: %q", answers["expired"])
	}

	// A pod of the job by Outrigger's labels. With the Job's own labels, the Job's controller
	// would adopt it, and delete one of two pods with the same index.
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ours, Name: "copy", Labels: map[string]string{}}, Spec: *idle(ours, "copy").Spec.Template.Spec.DeepCopy()}
	for _, name := range []string{names.LabelJob, names.LabelAttempt, batchv1.JobCompletionIndexAnnotation} {
		p.Labels[name] = first.Labels[name]
	}
	p.Spec.TopologySpreadConstraints, p.Spec.RestartPolicy = nil, corev1.RestartPolicyNever
	p.Spec.InitContainers = []corev1.Container{{
		Name: names.ContainerSidecar, Image: lab.Image(harness.Probe), ImagePullPolicy: corev1.PullNever, Args: []string{"report"},
		SecurityContext: p.Spec.Containers[0].SecurityContext,
	}}
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase == corev1.PodRunning {
			return err
		}
		return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
	})
	if said := certified(t, p, map[string]string{"copy": tokenOf(t, p, names.TokenAudience)})["copy"]; !strings.HasPrefix(said, "403 pod copy was not made for MPIJob tokens") {
		t.Errorf("a pod with a job's labels: %q", said)
	}
}
