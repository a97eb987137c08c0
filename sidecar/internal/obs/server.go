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

// Sources are the functions and values that a handler shows.
type Sources struct {
	Alive     func() error // nil result: the engine's turns go on
	Snapshot  func() (Snapshot, error)
	Traffic   func() (cells []Cell, rest Cell, err error) // traffic between ranks
	Waits     func() ([]why.Rank, error)                  // what the ranks of this pod wait for
	Trace     func() (io.WriterTo, error)                 // the timeline, as JSON; nil result: none is recorded
	Flight    *Flight
	FirstRank int
	Ranks     int // number of ranks of the job
	Pod       int
	Transport string // transport between this pod and the other pods
	Ready     func() bool
	Failure   func() *Failure      // why the job failed; nil: it has not
	Break     func(peer int) error // breaks a connection, as a drill; ErrNoPeer: there is none
	End       func(why string)     // ends the job, which has not failed by itself
	Drain     func(why string)     // records that the job's ranks are told to end, while their messages go on
	Log       *slog.Logger
}

// ErrNoPeer reports a number that is not that of one of the sidecar's peers.
var ErrNoPeer = errors.New("no such peer")

// LocalHandler serves what Handler does to clients that can open a socket file of this pod.
// It also serves /trace and /debug/flight, POST /debug/break/PEER, which breaks the
// connection to a peer, as a drill, and POST /end and /drain, whose body is a line with the
// reason for which the job ends: at once, or by its ranks, which are told to end.
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
		_, _ = f.WriteTo(w) // an error means that the client has gone
	})
	mux.HandleFunc("GET /debug/flight", func(w http.ResponseWriter, _ *http.Request) { _ = s.Flight.Dump(w) }) // a client that has gone does not matter
	return mux
}

// reasoned calls f with the line in a request's body.
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

// endText bounds the reason for which a job ends, in bytes: it is part of log lines and
// statuses.
const endText = 200

func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

// Handler serves /metrics, /healthz, /readyz, /report and /why to a network whose hosts are
// not all trusted: no request there changes anything. Snapshots are taken at most once a
// second, and an answer is made once for all clients.
func Handler(s *Sources) http.Handler {
	c := *s
	c.Snapshot = cached(snapshotAge, s.Snapshot)
	traffic := cached(snapshotAge, func() (t trafficTable, err error) {
		t.cells, t.rest, err = s.Traffic()
		return t, err
	})
	c.Traffic = func() ([]Cell, Cell, error) {
		t, err := traffic()
		return t.cells, t.rest, err
	}
	c.Waits = cached(snapshotAge, s.Waits)
	inner := handler(&c)
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/report", "/why"} {
		mux.Handle("GET "+path, newAnswers(inner))
	}
	health(mux, s)
	return mux
}

// HealthHandler serves only /healthz and /readyz, for a network that must not learn what
// ranks do.
func HealthHandler(s *Sources) http.Handler {
	mux := http.NewServeMux()
	health(mux, s)
	return mux
}

type trafficTable struct {
	cells []Cell
	rest  Cell
}

// snapshotAge bounds the age of what clients of the network see, and so the rate of
// requests to the engine.
const snapshotAge = time.Second

// cached returns a function that repeats the last result of read while it is fresh.
// Concurrent callers wait for one result; an error is not kept.
func cached[T any](age time.Duration, read func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	var last T
	var at time.Time
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if !at.IsZero() && time.Since(at) < age {
			return last, nil
		}
		now, err := read()
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
		p, err := s.Snapshot()
		cells, rest, err2 := s.Traffic()
		waits, err3 := s.Waits()
		if err := errors.Join(err, err2, err3); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		r := NewReport(s, &p, cells, rest)
		r.Waits = slices.Clone(waits)
		for i := range r.Waits {
			r.Waits[i].Past = nil // a client that compares ranks requests /why
		}
		_ = json.NewEncoder(w).Encode(&r) // an error means that the client has gone
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

// health adds the paths that a kubelet requests.
func health(mux *http.ServeMux, s *Sources) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Alive(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // an error means that the client has gone
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !s.Ready() && !hasStarted(r) {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // as above
	})
}

// bounds limits the cost of clients that reach a listener. The sum of memory is in
// api/memory. Of the CPU time, which the engine needs, requests on all connections take
// some hundredths: 1,600 a second, and 500 a second from each address for connections with
// one request each. A kubelet's probe has the address of its node, as processes in the
// node's network have.
var bounds = connlimit.Bounds{
	Slots: memory.WatchSlots, Buffer: memory.WatchBuffer, Header: 8 << 10, Rate: 500, Gap: 20 * time.Millisecond,
	Request: 5 * time.Second, Answer: 10 * time.Second, Idle: time.Minute,
}

// Serve serves h on l until ctx ends. The answers of a Unix socket, which only this pod's
// own programs reach, may be large (/trace), and their duration is not bounded.
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
