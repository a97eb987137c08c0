package certify

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLater checks that an issuer that says when a pod may ask again is not asked before,
// about any part, and that known addresses stay known.
func TestLater(t *testing.T) {
	var questions atomic.Int64
	var refuses atomic.Bool
	a := located(t, 300, func(w http.ResponseWriter, _ *http.Request) {
		questions.Add(1)
		if refuses.Load() {
			w.Header().Set("Retry-After", "40")
			http.Error(w, "pod p asks too often", http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, `{"pods":{"0":["10.0.0.1"]}}`)
	})
	if _, err := a.Lookup(t.Context(), "cg-0-0"); err != nil {
		t.Fatal(err)
	}
	a.parts[0].asked = time.Time{} // long ago
	refuses.Store(true)
	for range 5 {
		var later *RetryLater
		if _, err := a.Lookup(t.Context(), "cg-0-299"); !errors.As(err, &later) || later.After != 40*time.Second || !strings.Contains(err.Error(), "pod p asks too often") {
			t.Fatalf("%v", err)
		}
		a.parts[1].asked = time.Time{}
	}
	if list, err := a.Lookup(t.Context(), "cg-0-0"); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if n := questions.Load(); n != 2 {
		t.Errorf("%d questions, want 2", n)
	}
}

// TestLaterIsBounded checks that a sidecar waits at least a second and at most a minute,
// whatever the issuer says.
func TestLaterIsBounded(t *testing.T) {
	for said, want := range map[string]time.Duration{"": time.Second, "0": time.Second, "-5": time.Second, "7": 7 * time.Second, "4294967295": time.Minute, "99999999999999999999": time.Second, "Wed, 21 Oct 2026 07:28:00 GMT": time.Second} {
		at, s := issuer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", said)
			http.Error(w, "too often", http.StatusTooManyRequests)
		})
		applicant, err := New(at)
		if err != nil {
			t.Fatal(err)
		}
		var later *RetryLater
		if _, err := applicant.Obtain(t.Context()); !errors.As(err, &later) || later.After != want || errors.Is(err, ErrRefused) {
			t.Errorf("Retry-After %q: %v, want %v", said, err, want)
		}
		s.Close()
	}
}
