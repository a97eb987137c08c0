package obs

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"
)

// answers serves one path whose body all clients share: a body is made at most once a
// second, and at most two are kept, the present one and an earlier one that a slow client
// still reads. While it does, other clients get the present one, however old: at most for
// the time of an answer (bounds).
type answers struct {
	from http.Handler
	turn chan struct{} // held by the request that makes an answer

	mu           sync.Mutex // guards what follows
	now, earlier *answer    // nil: there is none
}

type answer struct {
	header  http.Header
	status  int
	body    bytes.Buffer
	at      time.Time
	readers int // guarded by the mutex of answers
}

func newAnswers(from http.Handler) *answers {
	return &answers{from: from, turn: make(chan struct{}, 1)}
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found := a.wait(r)
	if found == nil {
		return // the client has gone, or its connection was closed to admit another one
	}
	defer a.read(found)
	maps.Copy(w.Header(), found.header)
	w.WriteHeader(found.status)
	_, _ = w.Write(found.body.Bytes()) // a client that has gone does not matter
}

// wait returns the answer for a request, or nil if the request ends before its turn.
func (a *answers) wait(r *http.Request) *answer {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
		return a.current(r)
	case <-r.Context().Done():
		return nil
	}
}

// current returns the answer for a request; the caller calls read when it has sent it.
func (a *answers) current(r *http.Request) *answer {
	a.mu.Lock()
	if a.earlier != nil && a.earlier.readers == 0 {
		a.earlier = nil
	}
	if a.now != nil && (a.earlier != nil || time.Since(a.now.at) < snapshotAge) {
		defer a.mu.Unlock()
		a.now.readers++
		return a.now
	}
	if a.now != nil && a.now.readers > 0 {
		a.earlier = a.now
	}
	a.now = nil
	a.mu.Unlock()
	made := &answer{header: http.Header{}, status: http.StatusOK, readers: 1}
	// Not compressed: the request's header would make the answer depend on the client.
	plain := r.Clone(r.Context())
	plain.Header = http.Header{}
	a.from.ServeHTTP(made, plain)
	made.at = time.Now()
	if made.status == http.StatusOK {
		a.mu.Lock()
		a.now = made
		a.mu.Unlock()
	}
	return made
}

// read ends a client's use of an answer.
func (a *answers) read(x *answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.readers--
}

func (x *answer) Header() http.Header { return x.header }

func (x *answer) WriteHeader(status int) { x.status = status }

func (x *answer) Write(b []byte) (int, error) { return x.body.Write(b) }
