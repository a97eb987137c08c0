package issuer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger-hpc/outrigger/api/bootstrap/pki"
	"github.com/outrigger-hpc/outrigger/api/names"
)

// answers sets the status of a TokenReview in place of an API server.
type answers func(*authenticationv1.TokenReviewStatus) error

func (a answers) Create(_ context.Context, r *authenticationv1.TokenReview) error {
	return a(&r.Status)
}

// TestReviewsThatSayNo: a token that is not for this audience, or not bound to a pod, is
// refused before its pod is looked up.
func TestReviewsThatSayNo(t *testing.T) {
	keys, err := NewKeys(bytes.Repeat([]byte("s"), 32))
	if err != nil {
		t.Fatal(err)
	}
	pod := map[string]authenticationv1.ExtraValue{extraPodName: {"p"}, extraPodUID: {"u"}}
	good := func(s *authenticationv1.TokenReviewStatus) {
		*s = authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: []string{names.TokenAudience},
			User: authenticationv1.UserInfo{Username: "system:serviceaccount:hpc:default", Extra: pod},
		}
	}
	for what, c := range map[string]struct {
		answer answers
		status int
		want   string
	}{
		"no answer":        {func(*authenticationv1.TokenReviewStatus) error { return errors.New("down") }, http.StatusServiceUnavailable, "down"},
		"expired":          {func(s *authenticationv1.TokenReviewStatus) error { s.Error = "token has expired"; return nil }, http.StatusUnauthorized, "token has expired"},
		"another audience": {func(s *authenticationv1.TokenReviewStatus) error { good(s); s.Audiences = []string{"x"}; return nil }, http.StatusUnauthorized, "is not one for"},
		"a person":         {func(s *authenticationv1.TokenReviewStatus) error { good(s); s.User.Username = "jane"; return nil }, http.StatusForbidden, "not bound"},
		"no pod":           {func(s *authenticationv1.TokenReviewStatus) error { good(s); s.User.Extra = nil; return nil }, http.StatusForbidden, "not bound"},
	} {
		s := &Server{Keys: keys, Reviews: c.answer, Log: slog.New(slog.DiscardHandler)}
		server := httptest.NewServer(s.Handler())
		_, request, err := pki.NewRequest()
		if err != nil {
			t.Fatal(err)
		}
		status, text := post(t, server, "token", request)
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d with %q", what, status, text, c.status, c.want)
		}
		if status, text := post(t, server, "token", []byte("no request")); status != http.StatusBadRequest {
			t.Errorf("%s, no request: %d %s", what, status, text)
		}
		if status, _ := post(t, server, strings.Repeat("t", tokenMax+1), request); status != http.StatusUnauthorized {
			t.Errorf("%s, a long token: %d", what, status)
		}
		server.Close()
	}
}

// TestAPIServerIsAway: if the API server is unavailable and the caches do not have an object,
// the request is not refused, because a refusal is final for a sidecar.
func TestAPIServerIsAway(t *testing.T) {
	keys, err := NewKeys(bytes.Repeat([]byte("s"), 32))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("dial tcp 10.0.0.1:443: connect: connection refused")
	live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refused
		},
	}).Build()
	s := &Server{
		Keys: keys, Log: slog.New(slog.DiscardHandler), Cache: fake.NewClientBuilder().WithScheme(scheme).Build(), Live: live,
		Reviews: answers(func(r *authenticationv1.TokenReviewStatus) error {
			*r = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{names.TokenAudience}, User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:hpc:default",
				Extra:    map[string]authenticationv1.ExtraValue{extraPodName: {"p"}, extraPodUID: {"u"}},
			}}
			return nil
		}),
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	_, request, err := pki.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	if status, text := post(t, server, "token", request); status != http.StatusServiceUnavailable || !strings.Contains(text, "connection refused") {
		t.Errorf("%d %s", status, text)
	}
}

func post(t *testing.T, server *httptest.Server, token string, body []byte) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+Path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestReplicas: the job document that one replica writes matches the certificates that another
// replica serves and signs, unless the replicas have different secrets.
func TestReplicas(t *testing.T) {
	replica := func(secret string) *Keys {
		k, err := NewKeys([]byte(strings.Repeat(secret, 32)))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	one, two, stranger := replica("a"), replica("a"), replica("b")
	if one.ID("uid", 1) != two.ID("uid", 1) || one.ID("uid", 1) == one.ID("uid", 2) || one.ID("uid", 1) == stranger.ID("uid", 1) {
		t.Error("identities are not those of secret, job and attempt")
	}
	ca, err := one.CA()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	for _, c := range []struct {
		keys  *Keys
		trust bool
	}{{two, true}, {stranger, false}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Keys: c.keys, URL: "https://issuer.hpc.svc" + Path, Listener: l, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Start(ctx) }()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "issuer.hpc.svc", MinVersion: tls.VersionTLS13})
		if (err == nil) != c.trust {
			t.Errorf("trust %v: %v", c.trust, err)
		}
		if err == nil {
			_ = conn.Close() // no request was sent
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	a, err := one.Authority("id")
	if err != nil {
		t.Fatal(err)
	}
	b, err := two.Authority("id")
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := pki.NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	text, err := b.Certify(key.Public(), 0)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if err := pki.Belongs(tls.Certificate{Certificate: [][]byte{block.Bytes}}, a.CA(), "id", 0); err != nil {
		t.Error(err)
	}
	if _, err := NewKeys([]byte("short")); err == nil {
		t.Error("a short secret is taken")
	}
}

// TestEndpointIsRenewed: an operator that has run for a long time still has a valid
// certificate.
func TestEndpointIsRenewed(t *testing.T) {
	made := 0
	e := &endpoint{make: func() (*tls.Certificate, error) {
		made++
		return &tls.Certificate{Leaf: &x509.Certificate{SerialNumber: big.NewInt(int64(made)), NotAfter: time.Now().Add(certificateLife)}}, nil
	}}
	serial := func() int64 {
		c, err := e.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber.Int64()
	}
	if first, again := serial(), serial(); first != 1 || again != 1 {
		t.Errorf("certificates %d and %d, want one", first, again)
	}
	e.cert.Leaf.NotAfter = time.Now().Add(certificateLife/2 - time.Minute)
	if n := serial(); n != 2 {
		t.Errorf("after half a year certificate %d serves", n)
	}
}
