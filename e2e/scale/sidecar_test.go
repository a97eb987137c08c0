//go:build cluster

package scale

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// issuers caches the issuers of the job documents, by the ConfigMap's name.
type issuers struct {
	mu    sync.Mutex
	known map[string]*bootstrap.Issuer
}

// certify does what a sidecar does when it starts: it takes its pod's token,
// makes a key and has it signed. The issuer is the operator's own.
func (k *kubelets) certify(ctx context.Context, p *corev1.Pod) {
	of, err := k.issuerOf(ctx, p)
	if err != nil {
		k.fail(ctx, err)
		return
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{names.TokenAudience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
	}}
	k.call(ctx, func() error {
		var err error
		token, err = k.client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, "default", token, metav1.CreateOptions{})
		return err
	})
	for pause := 200 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		err := k.sign(ctx, of, token.Status.Token)
		if err == nil || errors.Is(err, errRefused) {
			k.fail(ctx, err)
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// errRefused is an answer after which a sidecar does not repeat its request.
var errRefused = errors.New("no certificate")

// sign sends one certificate request.
func (k *kubelets) sign(ctx context.Context, of *bootstrap.Issuer, token string) error {
	k.slots <- struct{}{}
	defer func() { <-k.slots }()
	_, request, err := pki.NewRequest()
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(of.CA))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, of.URL, bytes.NewReader(request))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(r)
	if err != nil {
		return k.again(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return k.again(ctx, err)
	}
	said := fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	block, _ := pem.Decode(text)
	switch resp.StatusCode {
	case http.StatusOK:
		if block == nil {
			return fmt.Errorf("%w: %w", errRefused, said)
		}
		k.certified.Add(1)
		return nil
	case http.StatusServiceUnavailable:
		k.later.Add(1)
		return said
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", errRefused, said)
	}
	return k.again(ctx, said)
}

// issuerOf reads a pod's job document, as the kubelets of a job's nodes do.
func (k *kubelets) issuerOf(ctx context.Context, p *corev1.Pod) (*bootstrap.Issuer, error) {
	var name string
	for _, v := range p.Spec.Volumes {
		if v.Name == names.VolumeJob {
			name = v.ConfigMap.Name
		}
	}
	k.issuers.mu.Lock()
	defer k.issuers.mu.Unlock()
	if of := k.issuers.known[name]; of != nil {
		return of, nil
	}
	document, err := k.client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	parsed, err := bootstrap.Parse([]byte(document.Data[names.BootstrapFile]))
	if err != nil {
		return nil, err
	}
	if parsed.TLS.Issuer == nil {
		return nil, fmt.Errorf("the document of %s names no issuer", name)
	}
	k.issuers.known[name] = parsed.TLS.Issuer
	return parsed.TLS.Issuer, nil
}

// judge checks that every pod has got its certificate.
func (k *kubelets) judge(t *testing.T, pods int) {
	t.Helper()
	t.Logf("%d certificates, %d requests that came before the operator had heard of their pod's address, %d calls made again", k.certified.Load(), k.later.Load(), k.tries.Load())
	if n := k.certified.Load(); n != int64(pods) {
		t.Errorf("%d pods have got their certificate, want %d", n, pods)
	}
}

func (k *kubelets) fail(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		k.t.Errorf("stand-in sidecar: %v", err)
	}
}
