package certify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/dns"
)

// located returns the addresses of pods pods, from an issuer that calls answer.
func located(t *testing.T, pods int, answer func(w http.ResponseWriter, r *http.Request)) *Addresses {
	t.Helper()
	at, s := issuer(t, answer)
	at.AddressesURL = s.URL + "/v1/addresses"
	var list []bootstrap.Pod
	for i := range pods {
		list = append(list, bootstrap.Pod{Address: fmt.Sprintf("cg-0-%d:7077", i)})
	}
	a, err := NewAddresses(at, list)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAddresses checks that the pods of a part are asked for together, with the token,
// and that a pod without an address is waited for.
func TestAddresses(t *testing.T) {
	var questions atomic.Int64
	a := located(t, 300, func(w http.ResponseWriter, r *http.Request) {
		questions.Add(1)
		if r.Header.Get("Authorization") != "Bearer the token" || r.URL.Path != "/v1/addresses" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		switch r.URL.Query().Get("part") {
		case "0":
			_, _ = io.WriteString(w, `{"pods":{"0":["10.0.0.1"],"255":["10.0.0.255","fd00::1"]}}`)
		case "1":
			_, _ = io.WriteString(w, `{"pods":{"299":["10.0.1.43"]}}`)
		}
	})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if got, err := a.Lookup(t.Context(), "cg-0-255"); err != nil || fmt.Sprint(got) != "[10.0.0.255 fd00::1]" {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	all.Wait()
	if got, err := a.Lookup(t.Context(), "cg-0-299"); err != nil || got[0] != netip.MustParseAddr("10.0.1.43") {
		t.Errorf("%v, %v", got, err)
	}
	var missing *net.DNSError
	if _, err := a.Lookup(t.Context(), "cg-0-7"); !errors.As(err, &missing) || !missing.IsNotFound || !strings.Contains(err.Error(), "waiting for the address of pod 7") {
		t.Errorf("a pod that has not started: %v", err)
	}
	if _, err := a.Lookup(t.Context(), "elsewhere.test"); err == nil {
		t.Error("a host that is not in the job has an address")
	}
	// As many as pauses have passed meanwhile, and not one for each pod.
	if n := questions.Load(); n > 20 {
		t.Errorf("%d questions", n)
	}
}

// TestPodsThatMove checks that a pod whose address has changed is found again, by the
// resolver that peers use.
func TestPodsThatMove(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // no byte is sent
	at := atomic.Pointer[string]{}
	at.Store(new("127.0.7.77")) // an address without a listener
	a := located(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"pods":{"0":[%[1]q],"1":[%[1]q]}}`, *at.Load())
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Resolver{Lookup: a.Lookup}
	dial := func() error {
		conn, err := names.Dial(t.Context(), net.JoinHostPort("cg-0-1", port))
		if err == nil {
			_ = conn.Close() // no byte is sent
		}
		return err
	}
	if err := dial(); err == nil {
		t.Fatal("a pod is reached at a wrong address")
	}
	at.Store(new("127.0.0.1"))
	for err := dial(); err != nil; err = dial() {
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestWrongAnswers checks that an invalid answer is an error with the issuer's text.
func TestWrongAnswers(t *testing.T) {
	var status atomic.Int64
	var text atomic.Pointer[string]
	a := located(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, *text.Load())
	})
	for _, c := range []struct {
		status     int64
		text, want string
	}{
		{http.StatusForbidden, "pod p is over", "pod p is over"},
		{http.StatusServiceUnavailable, strings.Repeat("x", 1<<20), "503"},
		{http.StatusOK, `{"pods":{"256":["10.0.0.1"]}}`, "part 0"},
		{http.StatusOK, "<html>", "addresses of pods"},
	} {
		status.Store(c.status)
		text.Store(&c.text)
		a.parts[0].pause = 0
		if _, err := a.Lookup(t.Context(), "cg-0-1"); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2<<10 {
			t.Errorf("%d %.20s: %.100v", c.status, c.text, err)
		}
	}
	status.Store(http.StatusOK)
	text.Store(new(`{"pods":{"1":["10.0.0.1"]}}`))
	a.parts[0].pause = 0
	if got, err := a.Lookup(t.Context(), "cg-0-1"); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	a.parts[0].pause = 0
	if _, err := a.Lookup(ended, "cg-0-1"); err == nil {
		t.Error("an answer after the end")
	}
	if err := os.Remove(a.issuer.TokenFile); err != nil {
		t.Fatal(err)
	}
	a.parts[0].pause = 0
	if _, err := a.Lookup(t.Context(), "cg-0-1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a token: %v", err)
	}
}

// TestNoAnswers checks that an issuer without an answer is asked about a part as rarely
// as one with an answer, and not once for each peer.
func TestNoAnswers(t *testing.T) {
	var questions atomic.Int64
	a := located(t, 256, func(w http.ResponseWriter, _ *http.Request) {
		questions.Add(1)
		http.Error(w, "come again", http.StatusServiceUnavailable)
	})
	for range 3 {
		for pod := range 256 {
			if _, err := a.Lookup(t.Context(), fmt.Sprintf("cg-0-%d", pod)); err == nil || !strings.Contains(err.Error(), "come again") {
				t.Fatalf("pod %d: %v", pod, err)
			}
		}
	}
	// As many as pauses have passed meanwhile, and not one for each pod.
	if n := questions.Load(); n > 20 {
		t.Errorf("%d questions", n)
	}
}
