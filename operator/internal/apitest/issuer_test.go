//go:build cluster

package apitest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
	"github.com/outrigger-hpc/outrigger/operator/internal/issuer"
)

// token returns a token of a pod's service account, as the kubelet gets it.
func token(t *testing.T, p *corev1.Pod, audience string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "default"}}
	r := &authenticationv1.TokenRequest{}
	if audience != "" {
		r.Spec.Audiences = []string{audience}
	}
	if p.Name != "" {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}
	}
	if err := api.SubResource("token").Create(t.Context(), account, r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// at sets the address of a pod.
func at(t *testing.T, p *corev1.Pod, address string) {
	t.Helper()
	p.Status.PodIP, p.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	if err := api.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// ask requests a certificate from the issuer, from 127.0.0.1. It tries again if the issuer's
// cache does not have the pod's address yet.
func ask(t *testing.T, server *httptest.Server, bearer string) (status int, text string, key any) {
	t.Helper()
	eventually(t, func() error {
		if status, text, key = askOnce(t, server, bearer); status == http.StatusServiceUnavailable {
			return errors.New(text)
		}
		return nil
	})
	return status, text, key
}

func askOnce(t *testing.T, server *httptest.Server, bearer string) (status int, text string, key any) {
	t.Helper()
	signer, request, err := pki.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+issuer.Path, bytes.NewReader(request))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw), signer
}

// ways returns the two ways in which an issuer identifies the owner of a token: by the token's
// signature, and, if the API server does not publish its keys, by a TokenReview. Each way
// counts its reviews.
func ways(t *testing.T) map[string]*way {
	t.Helper()
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*way{}
	for name, fetch := range map[string]func(context.Context, string) ([]byte, error){
		"signature": func(ctx context.Context, path string) ([]byte, error) {
			return server.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		},
		"review": func(context.Context, string) ([]byte, error) { return nil, errors.New("forbidden") },
	} {
		w := &way{reviews: issuer.ReviewsBy(api)}
		s := *resident
		s.Reviews, s.Signatures = w, &issuer.Signatures{Fetch: fetch, Now: time.Now}
		w.server = &s
		all[name] = w
	}
	return all
}

// way is one way to identify the owner of a token.
type way struct {
	server  *issuer.Server
	reviews issuer.Reviews
	made    atomic.Int64
}

func (w *way) Create(ctx context.Context, r *authenticationv1.TokenReview) error {
	w.made.Add(1)
	return w.reviews.Create(ctx, r)
}

// TestIssuer: a pod of a job gets the certificate for its number in its job; a client
// with another token gets none.
func TestIssuer(t *testing.T) {
	for name, w := range ways(t) {
		t.Run(name, func(t *testing.T) {
			theIssuer(t, w.server, name == "signature")
			// If signatures are verified, no token is reviewed, not even an invalid one.
			if n := w.made.Load(); (n == 0) != (name == "signature") {
				t.Errorf("%d tokens were reviewed by the API server", n)
			}
		})
	}
}

func theIssuer(t *testing.T, s *issuer.Server, signature bool) {
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	ns := namespace(t)
	j := submit(t, ns, nil)
	pods := standInPods(t, get(t, ns, "cg-0", &batchv1.Job{}))
	other := submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name = "other" })
	theirs := standInPods(t, get(t, ns, "other-0", &batchv1.Job{}))
	for _, p := range append(pods[1:], theirs[1]) {
		at(t, p, "127.0.0.1")
	}
	at(t, pods[0], "127.0.0.9")

	for _, c := range []struct {
		pod *corev1.Pod
		of  *v1alpha1.MPIJob
	}{{pods[1], j}, {theirs[1], other}} {
		status, text, key := ask(t, server, token(t, c.pod, names.TokenAudience))
		block, _ := pem.Decode([]byte(text))
		if status != http.StatusOK || block == nil {
			t.Fatalf("%s: %d %s", c.pod.Name, status, text)
		}
		id := keys.ID(c.of.UID, 0)
		authority, err := keys.Authority(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := pki.Belongs(tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}, authority.CA(), id, 1); err != nil {
			t.Errorf("%s: %v", c.pod.Name, err)
		}
	}

	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "foreign", Labels: pods[1].Labels}, Spec: *pods[1].Spec.DeepCopy()}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "bare", Labels: pods[1].Labels, OwnerReferences: pods[1].OwnerReferences}, Spec: *pods[1].Spec.DeepCopy()}
	bare.Spec.InitContainers, bare.Spec.Volumes, bare.Spec.Containers[0].VolumeMounts = nil, nil, nil
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gone", Labels: pods[1].Labels, OwnerReferences: pods[1].OwnerReferences}, Spec: *pods[1].Spec.DeepCopy()}
	second := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "second", Labels: pods[1].Labels, OwnerReferences: pods[1].OwnerReferences}, Spec: *pods[1].Spec.DeepCopy()}
	for _, p := range []*corev1.Pod{foreign, bare, gone, second} {
		if err := api.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		at(t, p, "127.0.0.1")
	}
	late := token(t, gone, names.TokenAudience)
	if err := api.Delete(t.Context(), gone, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		token  string
		status int
		want   string
	}
	ended := answer{late, http.StatusUnauthorized, "is not one for"}
	if signature {
		ended = answer{late, http.StatusForbidden, "there is no pod gone"}
		eventually(t, func() error { // until the operator's cache has the object
			if _, text, _ := ask(t, server, late); !strings.Contains(text, ended.want) {
				return errors.New(text)
			}
			return nil
		})
	}
	for what, c := range map[string]answer{
		"no token":                    {"", http.StatusUnauthorized, "want a token"},
		"no token of the cluster's":   {"token", http.StatusUnauthorized, "is not one for"},
		"the application's own":       {token(t, pods[1], ""), http.StatusUnauthorized, "is not one for"},
		"for another audience":        {token(t, pods[1], "example.com"), http.StatusUnauthorized, "is not one for"},
		"of no pod":                   {token(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns}}, names.TokenAudience), http.StatusForbidden, "not bound to a pod"},
		"stolen: of another address":  {token(t, pods[0], names.TokenAudience), http.StatusForbidden, "it was stolen"},
		"of a pod that is gone":       ended,
		"of a pod with a job's label": {token(t, foreign, names.TokenAudience), http.StatusForbidden, "was not made for MPIJob"},
		"of a second pod of a number": {token(t, second, names.TokenAudience), http.StatusForbidden, "has the number of pod " + pods[1].Name},
		"of a pod without a sidecar":  {token(t, bare, names.TokenAudience), http.StatusForbidden, "has no sidecar"},
	} {
		if status, text, _ := ask(t, server, c.token); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d with %q", what, status, text, c.status, c.want)
		}
	}
	for _, p := range pods {
		exits(t, p, 3, "")
	}
	becomes(t, j, v1alpha1.ConditionFailed)
	if status, text, _ := ask(t, server, token(t, pods[1], names.TokenAudience)); status != http.StatusForbidden || !strings.Contains(text, "is over") {
		t.Errorf("a pod of a job that is over: %d %s", status, text)
	}
}

// TestIssuerOfExternalPods: of two pods with one number, the older one belongs to the job. The
// other one gets no certificate, even if the webhook admitted it.
func TestIssuerOfExternalPods(t *testing.T) {
	server := httptest.NewServer(resident.Handler())
	defer server.Close()
	ns := namespace(t)
	like := standInPods(t, get(t, submit(t, ns, nil).Namespace, "cg-0", &batchv1.Job{}))[1]
	submit(t, ns, func(j *v1alpha1.MPIJob) { j.Name, j.Spec.PodManagement = "theirs", v1alpha1.PodsExternal })
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{
			names.LabelJob: "theirs", names.LabelAttempt: "0", batchv1.JobCompletionIndexAnnotation: "1",
		}}, Spec: *like.Spec.DeepCopy()}
		if err := api.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		at(t, p, "127.0.0.1")
		pods = append(pods, p)
	}
	eventually(t, func() error {
		if status, text, _ := ask(t, server, token(t, pods[1], names.TokenAudience)); status != http.StatusForbidden || !strings.Contains(text, "has the number of pod a") {
			return fmt.Errorf("the second pod: %d %s", status, text)
		}
		return nil
	})
	if status, text, _ := ask(t, server, token(t, pods[0], names.TokenAudience)); status != http.StatusOK {
		t.Errorf("the first pod: %d %s", status, text)
	}
}
