package controller

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// freePort returns an address on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func probe(health, path string) int {
	answer, err := http.Get("http://" + health + path) //nolint:noctx // of this test's server
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// TestAwaitServer checks that an operator that is started while the API server is away waits
// for it, answers probes meanwhile, and frees the port of the probes.
func TestAwaitServer(t *testing.T) {
	health, server := freePort(t), freePort(t)
	done := make(chan error, 1)
	go func() {
		done <- AwaitServer(t.Context(), &rest.Config{Host: "http://" + server}, &Serving{Health: health})
	}()
	for probe(health, "/healthz") != http.StatusOK {
		time.Sleep(10 * time.Millisecond)
	}
	if got := probe(health, "/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d while the API server is away", got)
	}
	select {
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	l, err := net.Listen("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	api := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers++; answers == 1 { // it starts itself
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprint(w, "{}")
	})}
	defer func() { _ = api.Close() }()
	go func() { _ = api.Serve(l) }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if answers != 2 {
		t.Errorf("%d requests were answered, want 2", answers)
	}
	again, err := net.Listen("tcp", health)
	if err != nil {
		t.Fatalf("the manager cannot listen for probes: %v", err)
	}
	_ = again.Close()
}

// TestAwaitServerEnds checks that the wait ends with its context, and that errors which do
// not pass are left to the manager at once.
func TestAwaitServerEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := AwaitServer(ctx, &rest.Config{Host: "http://" + freePort(t)}, &Serving{Health: nowhere}); err == nil {
		t.Error("no error after the context has ended")
	}
	forbids := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer forbids.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer untrusted.Close()
	for _, host := range []string{forbids.URL, untrusted.URL} {
		if err := AwaitServer(t.Context(), &rest.Config{Host: host}, &Serving{Health: nowhere}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}
