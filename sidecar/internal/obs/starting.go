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

// Starting is the handler of a sidecar that is starting, which may take hours: its
// certificate comes from an issuer that may be absent. The sidecar is alive then, and not
// ready, and reports what it waits for.
type Starting struct {
	FirstRank, Ranks int  // first rank and number of ranks of this pod
	HealthOnly       bool // like HealthHandler: no information about ranks
	// State returns how far the start is: what the sidecar waits for outside of its pod
	// (empty: nothing), whether it is ready, and a channel that is closed when that
	// changes.
	State func() (awaits string, ready bool, changed <-chan struct{})

	ready atomic.Pointer[http.Handler]
	once  sync.Once
	ranks *answers // the answers of /why, made once for all clients
}

// Bounds of how long a request waits for a sidecar that is starting: if the sidecar waits
// for nothing outside of its pod, and for any reason if the request asks whether it has
// started (hasStarted). They are less than an answer may take (bounds.Answer).
const (
	startingWait = 5 * time.Second
	startedWait  = 8 * time.Second
)

// hasStarted reports whether a kubelet's request for /readyz asks whether the sidecar has
// ever been ready: /readyz?started. The answer waits until it is, because each negative
// answer is a warning among the pod's events, and a normal start takes some seconds.
func hasStarted(r *http.Request) bool { return r.URL.Path == "/readyz" && r.URL.Query().Has("started") }

// Enter makes h serve all further requests. It is called before State reports readiness.
func (s *Starting) Enter(h http.Handler) { s.ready.Store(&h) }

// ServeHTTP implements http.Handler.
func (s *Starting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := s.ready.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/healthz" {
		_, _ = fmt.Fprintln(w, "ok") // an error means that the client has gone
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

// why answers for each rank of the pod what its sidecar waits for.
func (s *Starting) why(w http.ResponseWriter, _ *http.Request) {
	awaits, _, _ := s.State()
	ranks := make([]why.Rank, s.Ranks)
	for i := range ranks {
		ranks[i] = why.Rank{Rank: s.FirstRank + i, State: why.NotStarted, Awaits: awaits}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(ranks) // an error means that the client has gone
}

// outcome returns what the sidecar waits for outside of its pod. If it waits for nothing,
// it will be ready in a moment, for which the request waits.
func (s *Starting) outcome(r *http.Request) string {
	wait, started := startingWait, hasStarted(r)
	if started {
		wait = startedWait
	}
	end := time.NewTimer(wait)
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

// Awaited returns why a sidecar that is starting is not ready.
func Awaited(awaits string) string {
	if awaits == "" {
		return "not ready: the sidecar starts"
	}
	return "not ready: the sidecar waits for " + awaits
}
