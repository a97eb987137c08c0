package obs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Sources are what a Server shows.
type Sources struct {
	Look      func() (Picture, error)
	Flight    *Flight
	FirstRank int
	Ranks     int // of the job
	Pod       int
	Ready     func() bool
	Failure   func() *Failure      // why the job failed; nil: it has not
	Break     func(peer int) error // breaks a connection, as a drill; ErrNoPeer: there is none
	Log       *slog.Logger
}

// ErrNoPeer reports a pod number that is not one of the sidecar's peers.
var ErrNoPeer = errors.New("no such peer")

// Report is one sidecar's part of a job's communication report.
type Report struct {
	Pod       int        `json:"pod"`
	Ranks     int        `json:"ranks"`
	FirstRank int        `json:"firstRank"`
	Protocols []Protocol `json:"protocols"`
	Cells     []Cell     `json:"cells"`
	Totals    Totals     `json:"totals"`
	Failure   *Failure   `json:"failure,omitempty"`
}

// Failure is why the job failed, as the sidecar sees it.
type Failure struct {
	Rank   uint32    `json:"rank"` // shm.AnySource: none can be named
	Code   uint32    `json:"code"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Totals are the counters that top shows.
type Totals struct {
	FramesIn, FramesOut, BytesIn, BytesOut uint64
	Expected, Unexpected                   uint64
	UnexpectedBytes                        uint64
	Sends, Receives                        int
	CreditStalls, Reconnects               uint64
	Busy, Idle                             uint64
}

// Cell is what one rank has sent to another.
type Cell struct{ Src, Dst, Messages, Bytes uint64 }

// NewReport makes the report of a picture.
func NewReport(s *Sources, p *Picture) Report {
	c := &p.Core
	r := Report{Pod: s.Pod, Ranks: s.Ranks, FirstRank: s.FirstRank, Protocols: Protocols(c), Failure: s.Failure(), Totals: Totals{
		FramesIn: c.FramesIn, FramesOut: c.FramesOut, BytesIn: p.BytesIn, BytesOut: p.BytesOut, Expected: c.Expected,
		Unexpected: c.Unexpected, UnexpectedBytes: c.UnexpectedBytes, Sends: c.Sends, Receives: c.Receives,
		CreditStalls: c.CreditStalls, Reconnects: c.Reconnects, Busy: p.Busy, Idle: p.Idle,
	}}
	for i, t := range c.Matrix {
		if t.Messages > 0 {
			r.Cells = append(r.Cells, Cell{uint64(s.FirstRank + i/s.Ranks), uint64(i % s.Ranks), t.Messages, t.Bytes})
		}
	}
	return r
}

// Handler serves /metrics, /healthz, /readyz, /report and /debug/flight; a POST
// to /debug/break/PEER breaks the connection to a peer, as a drill.
func Handler(s *Sources) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{look: s.Look}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := s.Look(); err != nil { // the turn answers: it is alive
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // a client that has gone does not matter
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.Ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // as above
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		p, err := s.Look()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(NewReport(s, &p)) // as above
	})
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
	mux.HandleFunc("GET /debug/flight", func(w http.ResponseWriter, _ *http.Request) { _ = s.Flight.Dump(w) })
	return mux
}

// Serve serves h on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // Serve returns its error
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
