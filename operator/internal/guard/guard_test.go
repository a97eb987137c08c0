package guard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// judge answers by token, and counts the questions.
type judge struct {
	asked   map[string]int
	answers map[string]int
}

func (j *judge) Allowed(_ context.Context, token, path, verb string) (int, error) {
	j.asked[token+" "+verb+" "+path]++
	status, ok := j.answers[token]
	if !ok {
		return 0, errors.New("down")
	}
	return status, nil
}

// TestGuard checks which clients may read metrics, and how often the API server is asked.
func TestGuard(t *testing.T) {
	j := &judge{asked: map[string]int{}, answers: map[string]int{
		"scraper": http.StatusOK, "tenant": http.StatusForbidden, "junk": http.StatusUnauthorized,
	}}
	g := New(j, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("metrics")) }), logr.Discard())
	for header, want := range map[string]struct {
		status int
		text   string
	}{
		"":                   {http.StatusUnauthorized, "want a token"},
		"Basic c2NyYXBlcg==": {http.StatusUnauthorized, "want a token"},
		"Bearer ":            {http.StatusUnauthorized, "want a token"},
		"Bearer " + strings.Repeat("x", tokenMax+1): {http.StatusUnauthorized, "want a token"},
		"Bearer scraper":   {http.StatusOK, "metrics"},
		"Bearer tenant":    {http.StatusForbidden, "ClusterRole outrigger-metrics"},
		"Bearer junk":      {http.StatusUnauthorized, "does not know"},
		"Bearer no answer": {http.StatusServiceUnavailable, "try again"},
	} {
		for range 3 {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Authorization", header)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != want.status || !strings.Contains(w.Body.String(), want.text) {
				t.Errorf("%.30q: %d %s, want %d with %q", header, w.Code, w.Body, want.status, want.text)
			}
		}
	}
	for q, n := range map[string]int{"scraper get /metrics": 1, "tenant get /metrics": 1, "junk get /metrics": 1, "no answer get /metrics": 3} {
		if j.asked[q] != n {
			t.Errorf("%s: asked %d times, want %d", q, j.asked[q], n)
		}
	}
	if len(j.asked) != 4 {
		t.Errorf("asked: %v", j.asked)
	}
	// A cached answer applies to one path.
	r := httptest.NewRequest(http.MethodGet, "/debug", nil)
	r.Header.Set("Authorization", "Bearer scraper")
	g.ServeHTTP(httptest.NewRecorder(), r)
	if j.asked["scraper get /debug"] != 1 {
		t.Error("the answer for /metrics was taken for /debug")
	}
}
