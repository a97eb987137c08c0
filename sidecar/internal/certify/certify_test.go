package certify

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
)

// issuer returns an issuer with an authority of its own.
func issuer(t *testing.T, answer http.HandlerFunc) (*bootstrap.Issuer, *httptest.Server) {
	t.Helper()
	s := httptest.NewTLSServer(answer)
	t.Cleanup(s.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &bootstrap.Issuer{URL: s.URL + "/v1/certificate", CA: string(ca), TokenFile: token}, s
}

// sign answers as a correct issuer.
func sign(t *testing.T, a *pki.Authority, w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
		return
	}
	key, err := pki.ReadRequest(raw)
	if err != nil || r.Header.Get("Authorization") != "Bearer the token" {
		t.Errorf("%v, %q", err, r.Header)
		return
	}
	cert, err := a.Certify(key, 7)
	if err != nil {
		t.Error(err)
	}
	_, _ = w.Write(cert)
}

// TestObtain checks that an issuer that fails once is asked again, and that its
// certificate is for the sidecar's own key.
func TestObtain(t *testing.T) {
	a, err := pki.New("abc", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	at, _ := issuer(t, func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) == 1 {
			http.Error(w, "the address of the pod is not known yet", http.StatusServiceUnavailable)
			return
		}
		sign(t, a, w, r)
	})
	x, err := New(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Obtain(t.Context()); err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "not known yet") {
		t.Errorf("the first answer: %v", err)
	}
	cert, err := x.Obtain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.Belongs(cert, a.CA(), "abc", 7); err != nil {
		t.Error(err)
	}
	if _, err := pki.ConfigOf(a.CA(), "test", cert); err != nil {
		t.Error(err)
	}
}

// TestRefused checks that a refusal is final, and has the issuer's text.
func TestRefused(t *testing.T) {
	var tries atomic.Int64
	at, _ := issuer(t, func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		http.Error(w, "pod x is of no MPIJob", http.StatusForbidden)
	})
	x, err := New(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Obtain(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "of no MPIJob") {
		t.Errorf("%v", err)
	}
	if tries.Load() != 1 {
		t.Errorf("asked %d times", tries.Load())
	}
}

// TestTokenHasExpired checks that a token that the kubelet renews late is read again.
func TestTokenHasExpired(t *testing.T) {
	a, err := pki.New("abc", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := issuer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the token" {
			http.Error(w, "the token has expired", http.StatusUnauthorized)
			return
		}
		sign(t, a, w, r)
	})
	if err := os.WriteFile(at.TokenFile, []byte("an old token"), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := New(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Obtain(t.Context()); err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("with an old token: %v", err)
	}
	if err := os.WriteFile(at.TokenFile, []byte("the token"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Obtain(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNoOtherIssuer checks that the token is sent to the issuer in the document, with its
// authority, and to no other server.
func TestNoOtherIssuer(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	redirecting, _ := issuer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	posing, _ := issuer(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	a, err := pki.New("another", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	posing.CA = string(a.CA())
	for what, at := range map[string]*bootstrap.Issuer{"a redirection": redirecting, "another authority": posing} {
		client, err := connect(at)
		if err != nil {
			t.Fatal(err)
		}
		_, request, err := pki.NewRequest()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t.Context(), client, at, request); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests were sent to other servers", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x, err := New(posing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Obtain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
