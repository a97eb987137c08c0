package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/outrigger-hpc/outrigger/api/connlimit/hostile"
	"github.com/outrigger-hpc/outrigger/api/v1alpha1"
)

// started serves on the loopback address until end is called.
func started(t *testing.T, serve func(context.Context, net.Listener) error) (at string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	return l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestPortsAreBounded: thousands of incomplete requests at the ports for probes and
// metrics hold a bounded number of connections, and a probe is answered in the
// meantime.
func TestPortsAreBounded(t *testing.T) {
	ports := newServing(nil)
	if err := ports.AddReadyzCheck("webhook", healthz.Ping); err != nil {
		t.Error(err)
	}
	handler := ports.health()
	for name, most := range map[string]int{"health": probes.Slots, "metrics": scrapes.Slots} {
		t.Run(name, func(t *testing.T) {
			at, end := started(t, func(ctx context.Context, l net.Listener) error {
				if name == "metrics" {
					return server(name, l, handler, &scrapes, nil).Start(ctx)
				}
				return server(name, l, handler, &probes, nil).Start(ctx)
			})
			list := hostile.Gather(t, at, 2000, hostile.Says("GET / HTTP/1.1\r\n"))
			r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + at + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close() // the body is short
			if r.StatusCode != http.StatusOK {
				t.Error(r.Status)
			}
			if n := list.Open(t); n > most {
				t.Errorf("%d connections are open, want %d at most", n, most)
			}
			list.Close()
			end()
		})
	}
}

// TestWebhookPortIsBounded: incomplete handshakes from one address hold at most its
// share of connections.
func TestWebhookPortIsBounded(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := certutil.GenerateSelfSignedCertKeyWithFixtures("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hooks := newWebhooks(dir)
	hooks.Register("/x", http.NotFoundHandler())
	if err := hooks.StartedChecker()(nil); err == nil {
		t.Error("it has started before its start")
	}
	at, end := started(t, hooks.serve)
	<-hooks.started
	list := hostile.Gather(t, at, 2000, hostile.Says("\x16\x03\x01"))
	if refused, err := net.Dial("tcp", at); err == nil {
		_, _ = refused.Read(make([]byte, 1)) // until all earlier connections have been accepted
		_ = refused.Close()                  // it is over
	}
	if n := list.Open(t); n > reviewed.Share {
		t.Errorf("%d connections of one address are open, want %d at most", n, reviewed.Share)
	}
	list.Close()
	if err := hooks.StartedChecker()(nil); err != nil {
		t.Error(err)
	}
	end()
}

// TestBodies: a bounded number of reviews is handled at once, others wait, and no
// review exceeds the size limit.
func TestBodies(t *testing.T) {
	come, wait, done := make(chan int), make(chan bool), make(chan bool)
	h := bodies(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		come <- 1
		<-wait
		_, err := io.Copy(io.Discard, r.Body)
		if tooLarge := new(http.MaxBytesError); (r.ContentLength > reviewMax) != errors.As(err, &tooLarge) {
			t.Errorf("%d bytes: %v", r.ContentLength, err)
		}
	}))
	ask := func(ctx context.Context, n int) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", n))))
		done <- true
	}
	for i := range reviewsAtOnce {
		go ask(t.Context(), reviewMax+i%2)
		<-come
	}
	gone, cancel := context.WithCancel(t.Context())
	go ask(gone, 1)
	cancel() // a request that waits for a slot
	<-done
	go ask(t.Context(), 1)
	close(wait)
	<-come
	for range reviewsAtOnce + 1 {
		<-done
	}
}

// TestManagerServes: a manager serves health and metrics, with bounds, before its
// caches have filled.
func TestManagerServes(t *testing.T) {
	discovery := map[string]any{
		"/api":              metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis":             metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/api/v1":           resources("v1", "Pod", "pods"),
		"/apis/batch/v1":    resources("batch/v1", "Job", "jobs"),
		"/apis/" + gvOurs(): resources(gvOurs(), "MPIJob", "mpijobs", "FabricProfile", "fabricprofiles"),
	}
	groups := discovery["/apis"].(metav1.APIGroupList)
	for _, gv := range []string{"batch/v1", gvOurs()} {
		group, version, _ := strings.Cut(gv, "/")
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv, Version: version}
		groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		discovery["/apis/"+group] = groups.Groups[len(groups.Groups)-1]
	}
	discovery["/apis"] = groups
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := discovery[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer api.Close()
	at := make([]string, 2)
	for i := range at {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at[i] = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m, err := NewManager(&rest.Config{Host: api.URL}, &Serving{Health: at[0], Metrics: at[1]})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.AddReadyzCheck("webhook", func(*http.Request) error { return errors.New("not yet") }); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	for url, want := range map[string]int{
		at[0] + "/healthz": http.StatusOK, at[0] + "/readyz": http.StatusInternalServerError, at[0] + "/readyz/ping": http.StatusOK, at[1] + "/metrics": http.StatusOK,
	} {
		r, err := http.Get("http://" + url)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // enough is known
		if r.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, r.Status, want)
		}
	}
	list := hostile.Gather(t, at[0], 500, hostile.Says("GET /"))
	r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + at[0] + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close() // the body is short
	if n := list.Open(t); n > probes.Slots {
		t.Errorf("%d connections are open, want %d at most", n, probes.Slots)
	}
	list.Close()
	http.DefaultClient.CloseIdleConnections()
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func gvOurs() string { return v1alpha1.GroupVersion.String() }

// resources returns the API server's list of the kinds of a version: kind and plural
// name alternate.
func resources(version string, kinds ...string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version}
	for i := 0; i < len(kinds); i += 2 {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kinds[i], Name: kinds[i+1], Namespaced: true, Verbs: []string{"get", "list", "watch"}})
	}
	return list
}

// TestHandshakesAreNoErrors: a failed handshake, such as the API server's before it has
// the webhook's certificate, is not in the error log of a server; a panic is.
func TestHandshakesAreNoErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it was never served
	s := server("webhook", l, http.NotFoundHandler(), &reviewed, nil).Server
	to, ok := s.ErrorLog.Writer().(*handshakes)
	if !ok {
		t.Fatalf("errors go to %T", s.ErrorLog.Writer())
	}
	var out strings.Builder
	to.to = &out
	for range 100 {
		s.ErrorLog.Print("http: TLS handshake error from 10.0.0.1:1: remote error: tls: bad certificate")
	}
	s.ErrorLog.Print("http: panic serving 10.0.0.1:1: oh")
	if got := out.String(); got != "http: panic serving 10.0.0.1:1: oh\n" {
		t.Errorf("errors of the server:\n%s", got)
	}
}
