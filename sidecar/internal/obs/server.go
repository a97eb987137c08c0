package obs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outrigger-hpc/outrigger/api/connlimit"
	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/why"
)

// Sources are what a handler shows.
type Sources struct {
	Alive     func() error // nil: the engine's turns go on
	Look      func() (Picture, error)
	Talked    func() (cells []Cell, rest Cell, err error) // who has sent to whom
	Waits     func() ([]why.Rank, error)                  // what the ranks of this pod wait for
	Trace     func() (io.WriterTo, error)                 // the timeline, as JSON; nil: none is recorded
	Flight    *Flight
	FirstRank int
	Ranks     int // of the job
	Pod       int
	Transport string // between this pod and the others
	Ready     func() bool
	Failure   func() *Failure      // why the job failed; nil: it has not
	Break     func(peer int) error // breaks a connection, as a drill; ErrNoPeer: there is none
	End       func(why string)     // ends the job, which has not failed by itself
	Drain     func(why string)     // notes that its ranks are told to end, while their messages go on
	Log       *slog.Logger
}

// ErrNoPeer reports a pod number that is not one of the sidecar's peers.
var ErrNoPeer = errors.New("no such peer")

// LocalHandler serves what Handler does, for those who reach a socket file of
// this pod: also /trace, /debug/flight, and by POST /debug/break/PEER, which breaks the
// connection to a peer, as a drill, and by POST /end and /drain, whose body is a line that
// says why the job is ended: at once, or by its ranks, which are told to end.
func LocalHandler(s *Sources) http.Handler {
	mux := handler(s)
	mux.HandleFunc("POST /debug/break/{peer}", func(w http.ResponseWriter, r *http.Request) {
		peer, err := strconv.Atoi(r.PathValue("peer"))
		if err != nil {
			http.Error(w, fmt.Sprintf("%q is no pod's number", r.PathValue("peer")), http.StatusBadRequest)
			return
		}
		switch err := s.Break(peer); {
		case errors.Is(err, ErrNoPeer):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /end", reasoned(s.End))
	mux.HandleFunc("POST /drain", reasoned(s.Drain))
	mux.HandleFunc("GET /trace", func(w http.ResponseWriter, _ *http.Request) {
		f, err := s.Trace()
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		case f == nil:
			http.Error(w, "nothing is recorded: start the sidecar with --trace, or the job with outrigger run --trace FILE", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = f.WriteTo(w) // a client that has gone does not matter
	})
	mux.HandleFunc("GET /debug/flight", func(w http.ResponseWriter, _ *http.Request) { _ = s.Flight.Dump(w) }) // a client that has gone does not matter
	return mux
}

// reasoned calls f with the line that is a request's body.
func reasoned(f func(why string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(io.LimitReader(r.Body, endText))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f(strings.Map(printable, strings.ToValidUTF8(string(text), "?")))
	}
}

// endText bounds why a job is ended, in bytes.
const endText = 200

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// Handler serves /metrics, /healthz, /readyz, /report and /why, for a network whose
// hosts are not all trusted: nothing there changes anything.
// Pictures are taken once a second at most, and an answer is made once for all who ask.
func Handler(s *Sources) http.Handler {
	c := *s
	c.Look = cached(pictureAge, s.Look)
	talked := cached(pictureAge, func() (t talk, err error) {
		t.cells, t.rest, err = s.Talked()
		return t, err
	})
	c.Talked = func() ([]Cell, Cell, error) {
		t, err := talked()
		return t.cells, t.rest, err
	}
	c.Waits = cached(pictureAge, s.Waits)
	inner := handler(&c)
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/report", "/why"} {
		mux.Handle("GET "+path, newAnswers(inner))
	}
	health(mux, s)
	return mux
}

// HealthHandler serves /healthz and /readyz alone, where what ranks do is
// nobody's business.
func HealthHandler(s *Sources) http.Handler {
	mux := http.NewServeMux()
	health(mux, s)
	return mux
}

type talk struct {
	cells []Cell
	rest  Cell
}

// pictureAge is how old what strangers see may be.
const pictureAge = time.Second

// cached makes look give what it gave before while that is fresh. Those who ask
// meanwhile wait for one answer; an error is not kept.
func cached[T any](age time.Duration, look func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	var last T
	var at time.Time
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if !at.IsZero() && time.Since(at) < age {
			return last, nil
		}
		now, err := look()
		if err == nil {
			last, at = now, time.Now()
		}
		return now, err
	}
}

func handler(s *Sources) *http.ServeMux {
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{sources: s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	health(mux, s)
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		p, err := s.Look()
		cells, rest, err2 := s.Talked()
		waits, err3 := s.Waits()
		if err := errors.Join(err, err2, err3); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		r := NewReport(s, &p, cells, rest)
		r.Waits = slices.Clone(waits)
		for i := range r.Waits {
			r.Waits[i].Past = nil // who holds ranks against each other asks /why
		}
		_ = json.NewEncoder(w).Encode(&r) // a client that has gone does not matter
	})
	mux.HandleFunc("GET /why", func(w http.ResponseWriter, _ *http.Request) {
		ranks, err := s.Waits()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ranks) // as above
	})
	return mux
}

// health adds what a kubelet asks.
func health(mux *http.ServeMux, s *Sources) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Alive(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // a client that has gone does not matter
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !s.Ready() && !hasStarted(r) {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // as above
	})
}

// bounds of what those cost who reach a listener. The sum of memory is in api/memory. Of the
// processor, which the engine needs, requests on all places take some hundredths: 1,600 a
// second, and connections that are opened for one request each 500 of each address. A kubelet's
// probe has the address of its node, as processes with the node's network have.
var bounds = connlimit.Bounds{
	Slots: memory.WatchPlaces, Buffer: memory.WatchBuffer, Header: 8 << 10, Rate: 500, Gap: 20 * time.Millisecond,
	Request: 5 * time.Second, Answer: 10 * time.Second, Idle: time.Minute,
}

// Serve serves h on l until ctx ends. The answers of a Unix socket, which only this
// pod's own programs reach, may be large (/trace) and take as long as they take.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	b := bounds
	if l.Addr().Network() == "unix" {
		b.Answer, b.Gap = 0, 0
	}
	if err := connlimit.Serve(ctx, l, h, &b); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
