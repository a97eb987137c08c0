package bench

import (
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func part(v float64) *float64 { return &v }

var figures = []Figure{
	{Peer: "p", Test: Latency, Bytes: 8, US: 12.3456, USMin: 11},
	{Peer: "p", Test: Latency, Bytes: 4 << 20, US: 1234.5678, USMin: 1200},
	{Peer: "p", Test: Bandwidth, Bytes: 64 << 10, MBs: 6718.25},
	{Peer: "p", Test: Rate, Bytes: 8, MsgS: 1290498.4},
	{Peer: "p", Test: Overlap, Bytes: 1 << 20, Side: "isend", Mode: "one", Overlap: part(0), TransferUS: 100, ComputeUS: 150, TotalUS: 250},
	{Peer: "p", Test: Collectives, Op: "barrier", Ranks: 4, US: 40.04, USMin: 39},
	{Peer: "p", Test: Collectives, Op: "bcast", Ranks: 4, Bytes: 512, US: 51.06, USMin: 50},
	{Peer: "p", Test: Collectives, Op: "bcast", Ranks: 4, Bytes: 8, US: 50, USMin: 49},
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, figures); err != nil {
		t.Fatal(err)
	}
	want := `Latency: half a round trip
   size       us  best us
    8 B    12.35    11.00
  4 MiB  1234.57  1200.00

Bandwidth: one direction, windows of 64 messages (16 of 4 MiB)
    size  MB/s
  64 KiB  6718

Message rate
  size  messages/s
   8 B     1290498

Overlap: how much of a transfer hides behind computing
   size   side  computing  hidden  transfer us  computing us  both us
  1 MiB  isend        one     0 %        100.0         150.0    250.0

Collectives of 4 ranks: us a call, until the last rank is done
   size  barrier  bcast
    0 B     40.0      -
    8 B        -   50.0
  512 B        -   51.1
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestLinesGoThereAndBack checks the lines that hack/bench/compare and mpibench.c agree on.
func TestLinesGoThereAndBack(t *testing.T) {
	var b strings.Builder
	for _, f := range figures {
		if err := f.Write(&b); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(b.String(), "\n")
	for i, want := range map[int]string{
		0: `{"peer":"p","test":"latency","bytes":8,"us":12.346,"us_min":11}`,
		3: `{"peer":"p","test":"rate","bytes":8,"msg_s":1290498}`,
		4: `{"peer":"p","test":"overlap","bytes":1048576,"side":"isend","mode":"one","overlap":0,"transfer_us":100,"compute_us":150,"total_us":250}`,
		5: `{"peer":"p","test":"collectives","op":"barrier","ranks":4,"bytes":0,"us":40.04,"us_min":39}`,
	} {
		if lines[i] != want {
			t.Errorf("line %d:\n%s\nwant\n%s", i, lines[i], want)
		}
	}
	seen := 0
	all, err := Read(strings.NewReader(b.String()), func(Figure) error { seen++; return nil })
	if err != nil || len(all) != len(figures) || seen != len(figures) {
		t.Fatalf("%d figures read, %d seen, error %v", len(all), seen, err)
	}
	if diff := cmp.Diff(figures[4], all[4]); diff != "" {
		t.Errorf("overlap (-want +got):\n%s", diff)
	}
}

func TestReadRefusesWhatIsNoFigure(t *testing.T) {
	if _, err := Read(strings.NewReader("panic: oh\n"), func(Figure) error { return nil }); err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Errorf("error %v, want one with the line", err)
	}
	full := errors.New("disk full")
	if _, err := Read(strings.NewReader("{}\n{}\n"), func(Figure) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v, want that of see", err)
	}
}

func TestWhatNamesTheMeasurement(t *testing.T) {
	for i, want := range map[int]string{0: "latency 8 B", 4: "overlap 1 MiB isend one", 5: "collectives barrier", 6: "collectives bcast 512 B"} {
		if got := figures[i].What(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPlot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	files, err := Plot(dir, figures)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "latency.png"), filepath.Join(dir, "bandwidth.png"), filepath.Join(dir, "collectives.png")}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if picture.Bounds().Dx() < 100 {
			t.Errorf("%s is %v", name, picture.Bounds())
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := Plot(dir, figures[3:4]); err != nil || files != nil {
		t.Errorf("of a rate alone: %v, %v", files, err)
	}
}
