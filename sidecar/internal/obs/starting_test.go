package obs

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// TestStarting checks that a sidecar that is starting is alive, reports what it waits for,
// delays requests that it can answer in a moment, and shows nothing about ranks at its
// health port.
func TestStarting(t *testing.T) {
	var awaits atomic.Value
	awaits.Store("")
	changed := make(chan struct{})
	s := &Starting{FirstRank: 2, Ranks: 2, State: func() (string, bool, <-chan struct{}) {
		return awaits.Load().(string), false, changed
	}}
	get := func(h http.Handler, path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, text := get(s, "/healthz"); code != http.StatusOK {
		t.Errorf("health %d %s", code, text)
	}
	if code, text := get(s, "/readyz"); code != http.StatusServiceUnavailable || text != "not ready: the sidecar starts\n" {
		t.Errorf("readiness %d %s", code, text)
	}
	asked := make(chan string)
	go func() {
		_, text := get(s, "/report")
		asked <- text
	}()
	awaits.Store("a certificate")
	close(changed)
	if text := <-asked; text != "not ready: the sidecar waits for a certificate\n" {
		t.Errorf("the report: %s", text)
	}
	_, text := get(s, "/why")
	ranks, err := why.Read(strings.NewReader(text), 2)
	if err != nil || len(ranks) != 2 || ranks[0].Rank != 2 || ranks[1].Awaits != "a certificate" || ranks[1].State != why.NotStarted {
		t.Errorf("why: %v %v", ranks, err)
	}
	if lines := why.Explain(ranks); len(lines) != 1 || lines[0] != "ranks 2 and 3: have not started: the sidecar waits for a certificate" {
		t.Errorf("%q", lines)
	}
	health := &Starting{HealthOnly: true, State: s.State}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/why": 404, "/metrics": 404, "/debug/flight": 404} {
		if code, _ := get(health, path); code != want {
			t.Errorf("%s of the port of health: %d, want %d", path, code, want)
		}
	}
	s.Enter(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if code, _ := get(s, "/why"); code != http.StatusTeapot {
		t.Errorf("when it is ready: %d", code)
	}
}

// TestStarted checks that a kubelet that asks whether a sidecar has started is answered
// when it has, and not refused before, although the sidecar waits for its certificate, or
// while it ends.
func TestStarted(t *testing.T) {
	var ready atomic.Bool
	changed := make(chan struct{})
	s := &Starting{Ranks: 1, State: func() (string, bool, <-chan struct{}) { return "a certificate", ready.Load(), changed }}
	code := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz?started", nil))
		code <- w.Code
	}()
	ending := http.NewServeMux()
	health(ending, &Sources{Ready: func() bool { return false }})
	s.Enter(ending)
	ready.Store(true)
	close(changed)
	if got := <-code; got != http.StatusOK {
		t.Errorf("the answer is %d, want %d", got, http.StatusOK)
	}
	for path, want := range map[string]int{"/readyz?started": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s of a sidecar that ends: %d, want %d", path, w.Code, want)
		}
	}
	if startedWait >= bounds.Answer {
		t.Errorf("an answer waits for %v, and is cut off after %v", startedWait, bounds.Answer)
	}
	over, end := context.WithCancel(t.Context())
	end()
	w := httptest.NewRecorder()
	(&Starting{State: func() (string, bool, <-chan struct{}) { return "a certificate", false, nil }}).ServeHTTP(w, httptest.NewRequestWithContext(over, http.MethodGet, "/readyz?started", nil))
	if w.Code != http.StatusServiceUnavailable || w.Body.String() != "not ready: the sidecar waits for a certificate\n" {
		t.Errorf("without a start: %d %s", w.Code, w.Body)
	}
}

// TestAwaitsIsBounded checks that the text of another program in a sidecar's place is shown
// as one bounded line.
func TestAwaitsIsBounded(t *testing.T) {
	ranks, err := why.Read(strings.NewReader(`[{"rank":0,"state":"not started","awaits":"`+strings.Repeat("x", 10_000)+`"},{"rank":1,"state":"not started","awaits":"a\u001b[2J\nb"}]`), 2)
	if err != nil || len(ranks[0].Awaits) != why.AwaitsMax || ranks[1].Awaits != "a [2J b" {
		t.Errorf("%d bytes, %q, %v", len(ranks[0].Awaits), ranks[1].Awaits, err)
	}
}
