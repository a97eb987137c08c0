package report

import (
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/trace"
)

// pods returns the reports of a job of three ranks in two pods.
func pods() []obs.Report {
	return []obs.Report{
		{
			Pod: 0, Ranks: 3, FirstRank: 0,
			Protocols: []obs.Protocol{{Name: "eager", Messages: 5, Bytes: 500}, {Name: "rendezvous get"}},
			Cells:     []obs.Cell{{Src: 0, Dst: 1, Messages: 2, Bytes: 200}, {Src: 1, Dst: 2, Messages: 3, Bytes: 20 << 20}},
		},
		{
			Pod: 1, Ranks: 3, FirstRank: 2,
			Protocols: []obs.Protocol{{Name: "eager", Messages: 1, Bytes: 50}, {Name: "rendezvous get", Messages: 1, Bytes: 20 << 20}},
			Cells:     []obs.Cell{{Src: 2, Dst: 2, Messages: 1, Bytes: 50}, {Src: 2, Dst: 9, Messages: 1, Bytes: 1}, {Src: 9, Dst: 2, Messages: 1, Bytes: 1}},
		},
	}
}

func TestMerge(t *testing.T) {
	protocols, m := Merge(pods())
	want := []obs.Protocol{{Name: "eager", Messages: 6, Bytes: 550}, {Name: "rendezvous get", Messages: 1, Bytes: 20 << 20}}
	if diff := cmp.Diff(want, protocols); diff != "" {
		t.Errorf("protocols (-want +got):\n%s", diff)
	}
	matrix := &Matrix{
		Ranks:    3,
		Messages: [][]uint64{{0, 2, 0}, {0, 0, 3}, {0, 0, 1}},
		Bytes:    [][]uint64{{0, 200, 0}, {0, 0, 20 << 20}, {0, 0, 50}},
	}
	if diff := cmp.Diff(matrix, m); diff != "" {
		t.Errorf("matrix (-want +got):\n%s", diff)
	}
}

// TestMergeByName checks that protocols are added up by name if sidecars list them in
// another order, or lack one.
func TestMergeByName(t *testing.T) {
	all := pods()
	all[1].Protocols = []obs.Protocol{{Name: "rendezvous get", Messages: 1, Bytes: 7}, {Name: "collective", Messages: 2, Bytes: 8}}
	protocols, _ := Merge(all)
	want := []obs.Protocol{{Name: "eager", Messages: 5, Bytes: 500}, {Name: "rendezvous get", Messages: 1, Bytes: 7}, {Name: "collective", Messages: 2, Bytes: 8}}
	if diff := cmp.Diff(want, protocols); diff != "" {
		t.Errorf("protocols (-want +got):\n%s", diff)
	}
}

// TestShowCollectives checks that calls are added up over the pods, and that a job without
// collectives has no such table.
func TestShowCollectives(t *testing.T) {
	all := pods()
	all[0].Collectives = []obs.Collective{{Collective: "barrier", Algorithm: "two-level", Calls: 4}, {Collective: "allreduce", Algorithm: "ring", Calls: 2}}
	all[1].Collectives = []obs.Collective{{Collective: "allreduce", Algorithm: "two-level", Calls: 1}, {Collective: "allreduce", Algorithm: "ring", Calls: 1}}
	var b strings.Builder
	if err := Show(&b, all, ""); err != nil {
		t.Fatal(err)
	}
	want := `
Collectives: calls of ranks by algorithm
  collective  algorithm  calls
     barrier  two-level      4
   allreduce       ring      3
   allreduce  two-level      1
`
	if !strings.Contains(b.String(), want) {
		t.Errorf("the report has no\n%s\nin\n%s", want, &b)
	}
	b.Reset()
	if err := Show(&b, pods(), ""); err != nil || strings.Contains(b.String(), "Collectives") {
		t.Errorf("error %v, report of a job without collectives:\n%s", err, &b)
	}
}

// TestShowBuffers checks the report of each rank's buffers if links chose between copying
// and gathering.
func TestShowBuffers(t *testing.T) {
	all := pods()
	all[0].Buffers = []obs.Buffers{{Rank: 1, BufferCounts: link.BufferCounts{Seen: 9, Stopped: true, CopiedBytes: 100}}, {Rank: 0, BufferCounts: link.BufferCounts{
		Seen: 5, Frequent: 2, Registered: 3, PinnedBytes: 8192, CopiedBytes: 1000, GatheredBytes: 20 << 20,
	}}}
	var b strings.Builder
	if err := Show(&b, all, ""); err != nil {
		t.Fatal(err)
	}
	want := `
Buffers that were sent from
  rank  seen  frequent  registrations  pinned  copied  not copied  more are watched
     0     5         2              3  8192 B  1000 B    20.0 MiB               yes
     1     9         0              0     0 B   100 B         0 B                no
`
	if got := trimmed(b.String()); !strings.Contains(got, want) {
		t.Errorf("report:\n%s\nwant in it:%s", got, want)
	}
}

// TestShowExposed checks that operations on exposed memory are reported in one line for all
// pods.
func TestShowExposed(t *testing.T) {
	all := pods()
	all[0].Exposed = link.LentCounts{Reads: 7, Bytes: 30 << 20, Pairs: 2}
	all[1].Exposed = link.LentCounts{Reads: 1, Bytes: 10 << 20, Pairs: 1, Faults: 1}
	var b strings.Builder
	if err := Show(&b, all, ""); err != nil {
		t.Fatal(err)
	}
	if want := "\nexposed memory: 8 reads by the device, 40.0 MiB, 3 queue pairs, 1 of them failed\n"; !strings.Contains(b.String(), want) {
		t.Errorf("report:\n%s\nwant in it:%s", b.String(), want)
	}
}

// TestShowProcesses checks that messages between pods count in both pods, and that a sidecar that does
// not tell what it has used, as one of an earlier release, has no line.
func TestShowProcesses(t *testing.T) {
	all := append(pods(), obs.Report{Pod: 2, Ranks: 3})
	all[0].Process, all[1].Process = obs.Process{Seconds: 1.5, Waits: 30, Yields: 15}, obs.Process{Seconds: 0.25, Waits: 1}
	all[0].Totals.Expected, all[0].Totals.Unexpected = 20, 2
	all[0].Transport = []podlife.Traffic{{Transport: "local", Messages: 20}, {Transport: "node", Messages: 8}}
	var b strings.Builder
	if err := Show(&b, all, ""); err != nil {
		t.Fatal(err)
	}
	want := `
Sidecars: processor time in seconds, and context switches
  pod  processor  asleep  another ran  messages  switches per message
    0       1.50      30           15        30                  1.50
    1       0.25       1            0         0                     -
`
	if got := trimmed(b.String()); !strings.Contains(got, want) {
		t.Errorf("report:\n%s\nwant in it:%s", got, want)
	}
}

func TestShow(t *testing.T) {
	var b strings.Builder
	if err := Show(&b, pods(), ""); err != nil {
		t.Fatal(err)
	}
	want := `
What carried it: messages by protocol, those of collectives too
        protocol  messages     bytes
           eager         6     550 B
  rendezvous get         1  20.0 MiB

Sent from rank (row) to rank (column): messages, bytes
     0         1            2
  0  -  2, 200 B            -
  1  -         -  3, 20.0 MiB
  2  -         -      1, 50 B
`
	if diff := cmp.Diff(want, trimmed(b.String())); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	b.Reset()
	large := []obs.Report{{Ranks: textRanks + 1}}
	if err := Show(&b, large, ""); err != nil || strings.Contains(b.String(), "column") {
		t.Errorf("a job of %d ranks: %v\n%s", textRanks+1, err, b.String())
	}
}

// trimmed removes invisible blanks at the ends of lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// TestPlot checks that a picture is drawn, also for one rank, for a job without traffic and
// for a large job.
func TestPlot(t *testing.T) {
	for what, all := range map[string][]obs.Report{
		"three ranks": pods(), "one rank": {{Ranks: 1}}, "silence": {{Ranks: 5}}, "many": {{Ranks: 200}},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "folder")
			var b strings.Builder
			if err := Show(&b, all, dir); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "matrix.png")
			if !strings.Contains(b.String(), path) {
				t.Errorf("the report does not name %s:\n%s", path, b.String())
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }() // it was only read
			img, err := png.Decode(f)
			if err != nil {
				t.Fatal(err)
			}
			if size := img.Bounds().Size(); size.X < 300 || size.Y < 300 {
				t.Errorf("a picture of %v", size)
			}
		})
	}
}

// TestPlotShades checks that nothing is white, the maximum is dark, and values are written.
func TestPlotShades(t *testing.T) {
	c := newShades(scaleSteps)
	if r, g, b, _ := c[0].RGBA(); r != 0xffff || g != 0xffff || b != 0xffff {
		t.Error("nothing is not white")
	}
	for i := 1; i < len(c); i++ {
		r0, g0, b0, _ := c[i-1].RGBA()
		if r, g, b, _ := c[i].RGBA(); r+g+b > r0+g0+b0 {
			t.Errorf("shade %d is lighter than the one of less", i)
		}
	}
	_, m := Merge(pods())
	l, err := m.labels(8)
	if err != nil || strings.Join(l.Labels, ", ") != "200 B, 20.0 MiB, 50 B" {
		t.Errorf("%v, %v", l, err)
	}
}

// TestShowTimes checks that calls are counted separately from messages, that the three longest waits
// are those of all ranks, and that ranks whose windows need their process are named.
func TestShowTimes(t *testing.T) {
	all := pods()
	all[1].Times = []trace.Summary{{Rank: 1, Seconds: 2, InCalls: 1.5, Waiting: 1.25, Served: 7, Calls: []trace.Calls{{Name: "receive", Calls: 3, Bytes: 24}, {Name: "barrier", Calls: 1}}, Longest: []trace.Wait{{Rank: 1, Call: "receive", Peer: 0, Seconds: 0.5}, {Rank: 1, Call: "barrier", Peer: -1, Seconds: 0.25}}}}
	all[0].Times = []trace.Summary{{Rank: 0, Seconds: 2, InCalls: 0.5, Calls: []trace.Calls{{Name: "send", Calls: 3, Bytes: 24}, {Name: "barrier", Calls: 1}}, Longest: []trace.Wait{{Rank: 0, Call: "barrier", Peer: -1, Seconds: 0.75}, {Rank: 0, Call: "probe", Peer: 1, Seconds: 0.125}}}}
	var b strings.Builder
	if err := Show(&b, all, ""); err != nil {
		t.Fatal(err)
	}
	want := `
Calls of the ranks
     call  calls  bytes
     send      3   24 B
  barrier      2    0 B
  receive      3   24 B

Time of the ranks in seconds: at least one call open, and of it one that ends by another rank's doing
  rank  attached  in calls  waiting
     0     2.000     0.500    0.000
     1     2.000     1.500    1.250

Longest waits
  rank 0: barrier, 0.750 s
  rank 1: receive with rank 0, 0.500 s
  rank 1: barrier, 0.250 s

Accesses to windows that the process of their rank has carried out, and no sidecar
  rank  accesses
     1         7
`
	if got := trimmed(b.String()); !strings.HasPrefix(got, want) {
		t.Errorf("report:\n%s\nwant it to begin:%s", got, want)
	}
}

func TestPlotInAReadOnlyDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Show(io.Discard, pods(), filepath.Join(file, "plots")); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("plots below a file: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenOutput(t *testing.T) {
	if err := Show(broken{}, pods(), ""); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the output's error", err)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 10<<10 - 1: "10239 B", 10 << 10: "10.0 KiB", 10 << 20: "10.0 MiB", 10 << 30: "10.0 GiB", 5 << 40: "5120.0 GiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}

// TestTicks checks that an axis has a label for each rank of a small job, and at most ticksMax for
// any number of ranks.
func TestTicks(t *testing.T) {
	for ranks := 1; ranks < 200; ranks++ {
		p := plot.New()
		(&Matrix{Ranks: ranks}).ticks(p)
		n := len(p.X.Tick.Marker.Ticks(0, float64(ranks)))
		if n > ticksMax || ranks <= ticksMax && n != ranks {
			t.Errorf("%d ranks: %d labels", ranks, n)
		}
	}
}

// TestLargePaths: the report says by which path large payloads have come, with the rates.
func TestLargePaths(t *testing.T) {
	for want, paths := range map[string][2][]link.Path{
		"": {{{Name: "udp", In: 5}, {Name: "tcp"}}, {{Name: "udp"}, {Name: "tcp", Out: 7}}},
		"large payloads, by pod and peer: tcp from 2": {{{Name: "udp"}, {Name: "tcp", Peers: 1}}, {{Name: "udp"}, {Name: "tcp", Peers: 1}}},
		"large payloads, by pod and peer: raw from 1, tcp from 3 (raw 1.9 GB/s against tcp 1.1 GB/s)": {
			{{Name: "raw", Peers: 1, Rate: 1_900_000_000}, {Name: "tcp", Peers: 1, Rate: 1_100_000_000}}, {{Name: "raw"}, {Name: "tcp", Peers: 2}},
		},
		"large payloads, by pod and peer: raw from 1, tcp from 1 (raw 2 GB/s against tcp 3.12 GB/s)": {
			{{Name: "raw", Peers: 1, Rate: 2_000_000_000}, {Name: "tcp", Rate: 1_000_000_000}}, {{Name: "raw", Rate: 1_000_000_000}, {Name: "tcp", Peers: 1, Rate: 3_123_000_000}},
		},
	} {
		if got := largePaths([]obs.Report{{Paths: paths[0]}, {Paths: paths[1]}}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
