package obs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/why"
)

// Starting serves in place of a handler while a sidecar starts, which it may do for hours:
// its certificate comes from an issuer that may be away. It is alive then, and not ready,
// and says what it waits for.
type Starting struct {
	FirstRank, Ranks int  // of this pod
	HealthOnly       bool // as HealthHandler: nothing of ranks is shown
	// State is how far the sidecar is: what it waits for outside of its pod (empty: for
	// nothing), whether it is ready, and a channel that is closed when that changes.
	State func() (awaits string, ready bool, changed <-chan struct{})

	ready atomic.Pointer[http.Handler]
	once  sync.Once
	ranks *answers // of /why: made once for all who ask
}

// Bounds of how long a request waits for a sidecar that starts: one that waits for nothing outside
// of its pod, and, where the request asks whether it has started (hasStarted), any. They are less
// than an answer may take (bounds.Answer).
const (
	startingPatience = 5 * time.Second
	startedPatience  = 8 * time.Second
)

// hasStarted reports that a request for /readyz, by a kubelet, asks whether the sidecar has ever
// been ready: /readyz?started. The answer waits until it is, since each answer that says no is a
// warning among the pod's events, and a good start takes some seconds.
func hasStarted(r *http.Request) bool { return r.URL.Path == "/readyz" && r.URL.Query().Has("started") }

// Enter has all further requests served by h. It comes before State tells of readiness.
func (s *Starting) Enter(h http.Handler) { s.ready.Store(&h) }

// ServeHTTP implements http.Handler.
func (s *Starting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := s.ready.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/healthz" {
		_, _ = fmt.Fprintln(w, "ok") // a client that has gone does not matter
		return
	}
	if s.HealthOnly && r.URL.Path != "/readyz" {
		http.NotFound(w, r)
		return
	}
	awaits := s.outcome(r)
	if h := s.ready.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/why" && awaits != "" {
		s.once.Do(func() { s.ranks = newAnswers(http.HandlerFunc(s.why)) })
		s.ranks.ServeHTTP(w, r)
		return
	}
	http.Error(w, Awaited(awaits), http.StatusServiceUnavailable)
}

// why says of each rank of the pod what its sidecar waits for.
func (s *Starting) why(w http.ResponseWriter, _ *http.Request) {
	awaits, _, _ := s.State()
	ranks := make([]why.Rank, s.Ranks)
	for i := range ranks {
		ranks[i] = why.Rank{Rank: s.FirstRank + i, State: why.NotStarted, Awaits: awaits}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(ranks) // a client that has gone does not matter
}

// outcome is what the sidecar waits for outside of its pod. One that waits for nothing is
// ready in a moment, for which a request waits.
func (s *Starting) outcome(r *http.Request) string {
	patience, started := startingPatience, hasStarted(r)
	if started {
		patience = startedPatience
	}
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		awaits, ready, changed := s.State()
		if ready || !started && (awaits != "" || r.URL.Path == "/readyz") {
			return awaits
		}
		select {
		case <-changed:
		case <-end.C:
			return awaits
		case <-r.Context().Done():
			return awaits
		}
	}
}

// Awaited says of a sidecar that starts why it is not ready.
func Awaited(awaits string) string {
	if awaits == "" {
		return "not ready: the sidecar starts"
	}
	return "not ready: the sidecar waits for " + awaits
}
