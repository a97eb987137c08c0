package obs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestMain checks that no goroutine is left, except those of a server that refuses a request:
// it closes its connection half a second later.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// picture returns the snapshot of a sidecar that hosts ranks 2 and 3 of 4.
func picture() Snapshot {
	p := Snapshot{Busy: 11, Idle: 12, Yields: 13, Sleeps: 14, BytesIn: 15, BytesOut: 16, RefusedConnections: 17}
	p.Core = core.Stats{
		Eager: core.Traffic{Messages: 3, Bytes: 300}, Get: core.Traffic{Messages: 1, Bytes: 1 << 20},
		FramesIn: 21, FramesOut: 22, Expected: 23, Unexpected: 24, UnexpectedBytes: 25, UnexpectedPeak: 26,
		Sends: 27, Receives: 28, Parked: 29, CreditStalls: 30, Breaks: 31, Reconnects: 32,
		Local: core.Traffic{Messages: 1, Bytes: 1<<20 + 10}, Remote: core.Traffic{Messages: 3, Bytes: 300}, Peers: 1,
	}
	p.Core.Sizes[0], p.Core.Sizes[7] = 1, 3
	p.Core.Algorithms[coll.Allreduce][coll.TwoLevel], p.Core.Algorithms[coll.Alltoallv][coll.Auto] = 81, 82
	p.Paths = []link.Path{{Name: "raw", In: 71, Out: 72, Dropped: 73}, {Name: "tcp", In: 74, Out: 75}}
	p.Lent = link.LentCounts{Reads: 51, Bytes: 52, Pairs: 53, Faults: 54}
	p.Copies = copyeng.Stats{Kind: "helper", Inline: 61, Offloaded: 62, Pending: 63, Fallbacks: 64, EngineNS: 65e9, ChannelNS: 66e9}
	p.Buffers = []Buffers{{2, link.BufferCounts{Seen: 41, Frequent: 42, Registered: 43, PinnedBytes: 44, CopiedBytes: 45, GatheredBytes: 46, Stopped: true}}}
	return p
}

func sources() *Sources {
	return &Sources{
		Alive:    func() error { return nil },
		Snapshot: func() (Snapshot, error) { return picture(), nil },
		Traffic: func() ([]Cell, Cell, error) {
			return []Cell{{2, 1, 3, 300}, {3, 3, 1, 1<<20 + 10}}, Cell{Messages: 5, Bytes: 6}, nil
		},
		Waits:  func() ([]why.Rank, error) { return []why.Rank{{Rank: 2, Quiet: 4}}, nil },
		Flight: new(Flight), FirstRank: 2, Ranks: 4, Pod: 1, Transport: "tcp",
		Ready: func() bool { return true }, Failure: func() *Failure { return nil }, Log: slog.New(slog.DiscardHandler),
		Break: func(peer int) error {
			if peer != 0 {
				return fmt.Errorf("%w: pod %d", ErrNoPeer, peer)
			}
			return nil
		},
	}
}

func ask(s *Sources, method, path string) (int, string) {
	w := httptest.NewRecorder()
	LocalHandler(s).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

// TestMetrics parses a scrape as Prometheus does and compares every value.
func TestMetrics(t *testing.T) {
	_, text := ask(sources(), http.MethodGet, "/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for name, f := range families {
		if !strings.HasPrefix(name, "outrigger_") {
			continue
		}
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		counter := strings.HasSuffix(name, "_total")
		if counter != (f.GetType() == dto.MetricType_COUNTER) {
			t.Errorf("%s is a %v", name, f.GetType())
		}
		for _, m := range f.GetMetric() {
			key := strings.TrimPrefix(name, "outrigger_")
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				got[key] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				got[key] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				got[key+" count"], got[key+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				for _, b := range h.GetBucket() {
					if le := b.GetUpperBound(); le == 0 || le == 63 || le == 127 {
						got[fmt.Sprintf("%s to %v", key, le)] = float64(b.GetCumulativeCount())
					}
				}
			default:
				t.Errorf("%s is a %v", name, f.GetType())
			}
		}
	}
	want := map[string]float64{
		"messages_total eager": 3, "messages_total rendezvous_get": 1, "messages_total rendezvous_put": 0,
		"messages_total rendezvous_stream": 0, "messages_total one-sided": 0, "messages_total remote_put": 0, "messages_total remote_get": 0, "messages_total collective": 0,
		"message_bytes_total eager": 300, "message_bytes_total rendezvous_get": 1 << 20, "message_bytes_total rendezvous_put": 0,
		"message_bytes_total rendezvous_stream": 0, "message_bytes_total one-sided": 0, "message_bytes_total remote_put": 0, "message_bytes_total remote_get": 0, "message_bytes_total collective": 0,
		"collectives_total two-level allreduce": 81, "collectives_total none alltoallv": 82,
		"frames_total in": 21, "frames_total out": 22, "link_bytes_total in": 15, "link_bytes_total out": 16,
		"link_path_bytes_total in raw": 71, "link_path_bytes_total out raw": 72, "link_path_dropped_total raw": 73,
		"link_path_bytes_total in tcp": 74, "link_path_bytes_total out tcp": 75, "link_path_dropped_total tcp": 0,
		"matches_total expected": 23, "matches_total unexpected": 24, "unexpected_bytes": 25, "unexpected_bytes_peak": 26,
		"requests_open send": 27, "requests_open receive": 28, "requests_open unexpected": 29,
		"credit_stalls_total": 30, "connection_breaks_total": 31, "reconnects_total": 32, "refused_connections_total": 17,
		"transport_info local": 1, "transport_info tcp": 1,
		"engine_turns_total busy": 11, "engine_turns_total idle": 12, "engine_turns_total yield": 13, "engine_turns_total sleep": 14,
		"exposed_reads_total": 51, "exposed_bytes_total": 52, "exposed_queue_pairs_total made": 53, "exposed_queue_pairs_total failed": 54,
		"copied_bytes_total cpu": 61, "copied_bytes_total helper": 62, "copies_pending": 63, "copy_fallbacks_total": 64,
		"thread_cpu_seconds_total engine": 65, "thread_cpu_seconds_total helper": 66,
		"buffers_seen_total 2": 41, "buffers_frequent 2": 42, "buffer_registrations_total 2": 43, "pinned_bytes 2": 44,
		"buffer_bytes_total copied 2": 45, "buffer_bytes_total gathered 2": 46, "buffers_stopped 2": 1,
		"message_size_bytes count": 4, "message_size_bytes sum": 1<<20 + 310,
		"message_size_bytes to 0": 1, "message_size_bytes to 63": 1, "message_size_bytes to 127": 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestReport(t *testing.T) {
	code, text := ask(sources(), http.MethodGet, "/report")
	var got Report
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK {
		t.Fatal(code, err, text)
	}
	p := picture()
	want := Report{
		Pod: 1, Ranks: 4, FirstRank: 2, Protocols: Protocols(&p.Core),
		Collectives: []Collective{{"allreduce", "two-level", 81}, {"alltoallv", "none", 82}},
		Cells:       []Cell{{2, 1, 3, 300}, {3, 3, 1, 1<<20 + 10}}, Rest: Cell{Messages: 5, Bytes: 6},
		Transport: []podlife.Traffic{
			{Transport: "local", Messages: 1, Bytes: 1<<20 + 10}, {Transport: "tcp", Peers: 1, Messages: 3, Bytes: 300},
		},
		Totals: Totals{
			FramesIn: 21, FramesOut: 22, BytesIn: 15, BytesOut: 16, Expected: 23, Unexpected: 24, UnexpectedBytes: 25,
			Sends: 27, Receives: 28, CreditStalls: 30, Reconnects: 32, Busy: 11, Idle: 12,
		},
		Exposed: p.Lent, Paths: p.Paths, Copies: p.Copies, Buffers: p.Buffers, Waits: []why.Rank{{Rank: 2, Quiet: 4}},
	}
	if p := got.Process; p.Seconds <= 0 || p.Waits == 0 {
		t.Errorf("this process has used %+v", p)
	}
	got.Process = Process{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	// 23 and 24 arrivals, and what was sent to other pods.
	if n := got.Messages(); n != 23+24+3 {
		t.Errorf("%d messages handled", n)
	}
}

func TestReportOfAFailedJob(t *testing.T) {
	s := sources()
	want := &Failure{Rank: 3, Code: 5, Reason: "called abort", Time: time.Unix(1, 0).UTC()}
	s.Failure = func() *Failure { return want }
	_, text := ask(s, http.MethodGet, "/report")
	var got Report
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Failure); diff != "" {
		t.Errorf("failure (-want +got):\n%s", diff)
	}
}

// TestTransports checks that only transports that carry messages are in use.
func TestTransports(t *testing.T) {
	s := sources()
	p := Snapshot{}
	if got := Transports(s, &p); len(got) != 0 || got == nil {
		t.Errorf("nothing was sent, and %v is in use", got)
	}
	p.Core.Peers = 2 // they may only have received
	want := []podlife.Traffic{{Transport: "tcp", Peers: 2}}
	if diff := cmp.Diff(want, Transports(s, &p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWords checks that a failure without a rank, or without a code, makes a complete
// message.
func TestWords(t *testing.T) {
	at := time.Unix(1, 0)
	for _, c := range []struct {
		f    Failure
		want podlife.Failure
	}{
		{Failure{Rank: 3, Code: 42, Reason: podlife.TextAborted, Time: at}, podlife.Failure{Rank: 3, Code: 42, Reason: podlife.JobAborted, Text: podlife.TextAborted, Time: at}},
		{Failure{Rank: shm.AnySource, Reason: "odd", Time: at}, podlife.Failure{Rank: podlife.NoRank, Code: 1, Reason: podlife.JobFailed, Text: "odd", Time: at}},
	} {
		if diff := cmp.Diff(c.want, c.f.Words()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestEnd checks that a client of the socket can end the job, with a line of text.
func TestEnd(t *testing.T) {
	s, told := sources(), []string{}
	s.End = func(why string) { told = append(told, why) }
	w := httptest.NewRecorder()
	LocalHandler(s).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/end", strings.NewReader("not finished\nwithin 2s \x1b[31m\xff"+strings.Repeat("x", 1000))))
	if len(told) != 1 || w.Code != http.StatusOK || len(told[0]) > endText || !strings.HasPrefix(told[0], "not finished within 2s  [31m?xxx") {
		t.Errorf("%d, %q", w.Code, told)
	}
	drained := ""
	s.Drain = func(why string) { drained = why }
	LocalHandler(s).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/drain", strings.NewReader("interrupted")))
	if drained != "interrupted" {
		t.Errorf("drained by %q", drained)
	}
}

// TestNetworkHandler checks that a client of the network can read, and changes nothing.
func TestNetworkHandler(t *testing.T) {
	s := sources()
	s.Break = func(int) error { t.Error("a connection was broken from the network"); return nil }
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/healthz", http.StatusOK},
		{http.MethodGet, "/readyz", http.StatusOK},
		{http.MethodGet, "/metrics", http.StatusOK},
		{http.MethodGet, "/report", http.StatusOK},
		{http.MethodPost, "/report", http.StatusMethodNotAllowed},
		{http.MethodPost, "/debug/break/0", http.StatusNotFound},
		{http.MethodPost, "/end", http.StatusNotFound},
		{http.MethodPost, "/drain", http.StatusNotFound},
		{http.MethodGet, "/debug/flight", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		Handler(s).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
}

// TestHealthHandler checks that the network has only health if metrics are on loopback.
func TestHealthHandler(t *testing.T) {
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusOK,
		"/metrics": http.StatusNotFound, "/report": http.StatusNotFound, "/why": http.StatusNotFound, "/debug/flight": http.StatusNotFound,
	} {
		w := httptest.NewRecorder()
		HealthHandler(sources()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

func TestStoppedEngine(t *testing.T) {
	s := sources()
	s.Snapshot = func() (Snapshot, error) { return Snapshot{}, errors.New("engine: stopped") }
	s.Alive = func() error { return errors.New("engine: stopped") }
	s.Ready = func() bool { return false }
	for path, want := range map[string]int{
		"/healthz": http.StatusServiceUnavailable, "/readyz": http.StatusServiceUnavailable,
		"/report": http.StatusServiceUnavailable, "/metrics": http.StatusInternalServerError,
	} {
		code, text := ask(s, http.MethodGet, path)
		if code != want {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
		if path != "/readyz" && !strings.Contains(text, "engine: stopped") {
			t.Errorf("%s does not say why: %s", path, text)
		}
	}
}

// TestClientsShareASnapshot checks that any number of scrapes from the network asks the
// engine once a second, and that health takes no snapshot.
func TestClientsShareASnapshot(t *testing.T) {
	s := sources()
	looks, talks := 0, 0
	s.Snapshot = func() (Snapshot, error) { looks++; return picture(), nil }
	s.Traffic = func() ([]Cell, Cell, error) { talks++; return nil, Cell{}, nil }
	synctest.Test(t, func(t *testing.T) {
		h := Handler(s)
		scrape := func(path string) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != http.StatusOK {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
		for range 10 {
			scrape("/healthz")
		}
		if looks != 0 {
			t.Errorf("health took %d pictures, want none", looks)
		}
		for range 10 {
			scrape("/metrics")
			scrape("/report")
		}
		if looks != 1 || talks != 1 {
			t.Errorf("%d and %d pictures for 20 requests, want one each", looks, talks)
		}
		time.Sleep(snapshotAge)
		scrape("/metrics")
		if looks != 2 {
			t.Errorf("%d pictures after a second, want a second one", looks)
		}
	})
	ask(s, http.MethodGet, "/metrics")
	ask(s, http.MethodGet, "/metrics")
	if looks != 4 {
		t.Errorf("a client of this machine gets %d new snapshots, want 2", looks-2)
	}
}

func TestHealthAndDrill(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         int
		text         string
	}{
		{http.MethodGet, "/healthz", http.StatusOK, "ok"},
		{http.MethodGet, "/readyz", http.StatusOK, "ok"},
		{http.MethodPost, "/debug/break/0", http.StatusOK, ""},
		{http.MethodPost, "/debug/break/7", http.StatusNotFound, "no such peer: pod 7"},
		{http.MethodPost, "/debug/break/-1", http.StatusNotFound, "no such peer"},
		{http.MethodPost, "/debug/break/all", http.StatusBadRequest, `"all"`},
		{http.MethodGet, "/debug/break/0", http.StatusMethodNotAllowed, ""},
		{http.MethodPost, "/metrics", http.StatusMethodNotAllowed, ""},
		{http.MethodGet, "/", http.StatusNotFound, ""},
	} {
		code, text := ask(sources(), c.method, c.path)
		if code != c.want || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, code, text, c.want, c.text)
		}
	}
}

// TestFlightWraps checks that the recorder keeps the last events, oldest first.
func TestFlightWraps(t *testing.T) {
	s := sources()
	if _, text := ask(s, http.MethodGet, "/debug/flight"); text != "" {
		t.Errorf("an empty recorder shows %q", text)
	}
	const extra = 100
	for i := range flightEvents + extra {
		s.Flight.Record(int64(i)*1000, uint8(i%7), 1, 2, 3, 4, uint64(i))
	}
	_, text := ask(s, http.MethodGet, "/debug/flight")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != flightEvents {
		t.Fatalf("%d events, want %d", len(lines), flightEvents)
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, fmt.Sprintf(" frame=%d", extra+i)) {
			t.Fatalf("line %d is %q, want event %d", i, line, extra+i)
		}
	}
	first, last := extra%7, (flightEvents+extra-1)%7
	if want := fmt.Sprintf("%12.3f us  %-7s peer=1 rank=2 tag=0x3 bytes=4 frame=100", -float64(flightEvents-1), kinds[first]); lines[0] != want {
		t.Errorf("first line\n%s, want\n%s", lines[0], want)
	}
	if want := fmt.Sprintf("%12.3f us  %-7s", 0.0, kinds[last]); !strings.HasPrefix(lines[len(lines)-1], want) {
		t.Errorf("last line %q, want it to begin with %q", lines[len(lines)-1], want)
	}
	copied := s.Flight.Snapshot()
	s.Flight.Record(0, 1, 9, 9, 9, 9, 9)
	var same bytes.Buffer
	if err := copied.Dump(&same); err != nil || same.String() != text {
		t.Errorf("a snapshot shows something else: %v", err)
	}
	unknown := new(Flight)
	unknown.Record(0, 250, 0, ^uint32(0), 0, 0, 0)
	var b bytes.Buffer
	if err := unknown.Dump(&b); err != nil || !strings.Contains(b.String(), "?       peer=0 rank=-1") {
		t.Errorf("an event of an unknown kind: %q, %v", b.String(), err)
	}
	waiting := new(Flight)
	waiting.Record(0, kindRecv, -1, 2, 7, 800, uint64(^uint32(0)))
	b.Reset()
	if err := waiting.Dump(&b); err != nil || !strings.HasSuffix(b.String(), "recv    peer=-1 rank=2 tag=0x7 bytes=800 from=-1\n") {
		t.Errorf("a receive that waits: %q, %v", b.String(), err)
	}
	if err := unknown.Dump(broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("dump to a broken output: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestServe serves a real socket until its context ends.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Handler(sources())) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // the body is short
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	// A client that requests nothing delays no other one.
	idle, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }() // nothing was sent
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), l, nil); err == nil {
		t.Error("a closed listener was served")
	}
}
