package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/jobrun"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func look(seconds float64, totals obs.Totals, cells ...obs.Cell) *Sample {
	return &Sample{At: noon.Add(time.Duration(seconds * float64(time.Second))), Report: obs.Report{Totals: totals, Cells: cells}}
}

func TestRatesAreDifferencesASecond(t *testing.T) {
	before := look(0, obs.Totals{FramesIn: 10, FramesOut: 20, BytesIn: 1000, BytesOut: 2000, Busy: 50, Idle: 50, CreditStalls: 1},
		obs.Cell{Dst: 1, Messages: 100, Bytes: 5000})
	now := look(2, obs.Totals{
		FramesIn: 110, FramesOut: 120, BytesIn: 5000, BytesOut: 10_000, Busy: 80, Idle: 60, CreditStalls: 7,
		Sends: 3, Receives: 4, UnexpectedBytes: 512, Reconnects: 2,
	}, obs.Cell{Dst: 1, Messages: 400, Bytes: 7000}, obs.Cell{Dst: 2, Messages: 10, Bytes: 2000})
	want := Row{
		Pod: 3, Messages: 155, Sent: 2000, Frames: 100, In: 2000, Out: 4000,
		Sends: 3, Receives: 4, Unexpected: 512, Stalls: 7, Reconnects: 2, Busy: 0.75,
	}
	if diff := cmp.Diff(want, Compare(3, before, now), cmpopts.IgnoreUnexported(Row{})); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

// TestBuffersOfAPod checks that a pod's buffers are the sum of its ranks'.
func TestBuffersOfAPod(t *testing.T) {
	now := look(1, obs.Totals{})
	now.Report.Buffers = []obs.Buffers{
		{Rank: 4, BufferCounts: link.BufferCounts{Seen: 5, Frequent: 1, Registered: 2, CopiedBytes: 10, GatheredBytes: 100}},
		{Rank: 5, BufferCounts: link.BufferCounts{Seen: 7, Stopped: true, CopiedBytes: 20}},
	}
	now.Report.Exposed = link.LentCounts{Reads: 3}
	if got := Compare(0, nil, now).Exposed; got != now.Report.Exposed {
		t.Errorf("of exposed memory the row has %+v", got)
	}
	want := Buffers{Seen: 12, Frequent: 1, Registered: 2, CopiedBytes: 30, NotCopiedBytes: 100, Ranks: 2, Stopped: 1}
	if diff := cmp.Diff(want, Compare(0, nil, now).Buffers); diff != "" {
		t.Errorf("buffers (-want +got):\n%s", diff)
	}
}

func TestNoRatesWithoutTwoLooks(t *testing.T) {
	some := obs.Totals{Busy: 5, Idle: 5, FramesIn: 100, Sends: 2}
	for name, before := range map[string]*Sample{
		"first look":       nil,
		"silent before":    {At: noon, Err: errors.New("silent")},
		"began anew":       look(0, obs.Totals{Busy: 500, Idle: 5, FramesIn: 1}),
		"the same instant": look(1, some),
	} {
		if diff := cmp.Diff(Row{Fresh: true, Sends: 2}, Compare(0, before, look(1, some)), cmpopts.IgnoreUnexported(Row{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	asleep := Compare(0, look(0, some), look(1, some))
	if asleep.Fresh || asleep.Busy != 0 || asleep.Frames != 0 {
		t.Errorf("a sidecar that slept: %+v", asleep)
	}
}

func TestTable(t *testing.T) {
	jobs := []Job{{
		Entry: jobrun.Entry{Name: "cg", ID: "0123456789abcdef", PID: 4711, Ranks: 4, Started: noon, Metrics: []string{"a", "b", "c"}},
		Rows: []Row{
			{Pod: 0, Messages: 155.4, Sent: 2e6, Frames: 100, In: 1.25e8, Out: 4e3, Sends: 3, Receives: 4, Unexpected: 512, Stalls: 7, Reconnects: 2, Busy: 0.75, Waiting: 2, Longest: 4.2},
			{Pod: 1, Fresh: true, Sends: 1, Exposed: link.LentCounts{Reads: 8, Bytes: 30 << 20, Pairs: 2, Faults: 1}, Buffers: Buffers{Seen: 40, Frequent: 12, Registered: 13, CopiedBytes: 5000, NotCopiedBytes: 3 << 30, Ranks: 2, Stopped: 1}},
			{Pod: 2, Fresh: true, Err: fmt.Errorf("dial: %w", unix.ECONNREFUSED)},
		},
	}}
	var b strings.Builder
	if err := Write(&b, jobs, noon.Add(61400*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	want := `cg  01234567  process 4711, 4 ranks in 3 pods, for 1m1s
  pod  msg/s  MB/s sent  frames/s  MB/s in  MB/s out  sends  recvs  unexpected  stalls  reconnects  busy  waiting
    0    155        2.0       100    125.0       0.0      3      4       512 B       7           2  75 %   2, 4 s
    1      -          -         -        -         -      1      0         0 B       0           0     -        0
    2      ?          ?         ?        ?         ?      ?      ?           ?       ?           ?     ?        ?
pod 1: exposed memory: 8 reads by the device, 30.0 MiB, 2 queue pairs, 1 of them failed
pod 1: 40 buffers seen, 12 frequent, 13 registrations, 5000 B copied, 3072.0 MiB not copied; too few are used again of 1 of 2 ranks
pod 2: its sidecar is starting or has ended
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := Write(&b, nil, noon); err != nil || !strings.Contains(b.String(), "outrigger run") {
		t.Errorf("without jobs: %q, error %v; want how to start one", b.String(), err)
	}
}

func TestSilenceIsExplained(t *testing.T) {
	for err, want := range map[error]string{
		unix.ENOENT:              "starting or has ended",
		context.DeadlineExceeded: "does not answer",
		errors.New("500 oh"):     "500 oh",
	} {
		if got := silence(fmt.Errorf("get: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q in it", err, got, want)
		}
	}
}

func TestWatcherRemembersWhatStillRuns(t *testing.T) {
	frames := map[string]uint64{"a0": 0, "a1": 0, "b0": 0}
	w := Watcher{Fetch: func(_ context.Context, socket string) (*obs.Report, error) {
		n, ok := frames[socket]
		if !ok {
			return nil, errors.New("gone")
		}
		return &obs.Report{Totals: obs.Totals{FramesIn: n, Idle: n}}, nil
	}}
	a, b := jobrun.Entry{Name: "a", Metrics: []string{"a0", "a1"}}, jobrun.Entry{Name: "b", Metrics: []string{"b0"}}
	jobs := w.Sample(t.Context(), []jobrun.Entry{a, b})
	if len(jobs) != 2 || len(jobs[0].Rows) != 2 || !jobs[0].Rows[1].Fresh || !jobs[1].Rows[0].Fresh {
		t.Fatalf("first look: %+v", jobs)
	}
	frames["a0"] = 100
	delete(frames, "a1")
	jobs = w.Sample(t.Context(), []jobrun.Entry{a})
	if r := jobs[0].Rows; r[0].Fresh || r[0].Frames <= 0 || r[1].Err == nil || r[1].Pod != 1 {
		t.Errorf("second look: %+v", jobs)
	}
	if len(w.last) != 2 {
		t.Errorf("%d samples remembered, want those of a job that runs", len(w.last))
	}
}

// TestTopSaysWhatAllWaitFor checks that top prints what all ranks wait for, in a few lines
// for any number of ranks, and nothing while one of them may not wait.
func TestTopSaysWhatAllWaitFor(t *testing.T) {
	const ranks = 10_000
	now := look(1, obs.Totals{})
	for r := range ranks {
		now.Report.Waits = append(now.Report.Waits, why.Rank{Rank: r, Quiet: 9, Waits: []why.Wait{{Kind: why.Recv, Peer: (r + 1) % ranks, Tag: uint64(r), Seconds: 9}}})
	}
	job := Job{Entry: jobrun.Entry{Name: "cg"}, Rows: []Row{Compare(0, nil, now)}}
	if r := job.Rows[0]; r.Waiting != ranks || r.Longest != 9 {
		t.Errorf("%d ranks wait, for %v s", r.Waiting, r.Longest)
	}
	lines := job.stuck()
	if len(lines) != 2+stuckLines || !strings.HasPrefix(lines[0], "suspected deadlock") || !strings.Contains(lines[1], "in a ring") || !strings.HasSuffix(lines[5], "more lines: outrigger why cg") {
		t.Errorf("%q", lines)
	}
	now.Report.Waits[4711].Quiet = 0.1
	if lines := (&Job{Rows: []Row{Compare(0, nil, now)}}).stuck(); lines != nil {
		t.Errorf("one rank works, and %q", lines)
	}
	silent := Job{Rows: []Row{Compare(0, nil, look(1, obs.Totals{})), {Err: unix.ENOENT}}}
	if lines := silent.stuck(); lines != nil {
		t.Errorf("a sidecar is silent, and %q", lines)
	}
}
