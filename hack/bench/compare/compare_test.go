package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// run1 has a figure for every target: all met but the bandwidth in a pod.
const run1 = `
{"peer":"chain","test":"latency","bytes":64,"us":10,"us_min":9}
{"peer":"line","test":"self","bytes":8,"us":0.4}
{"peer":"outrigger-local","test":"self","bytes":8,"us":0.8}
{"peer":"wire","test":"latency","bytes":65536,"us":80}
{"peer":"wire","test":"latency","bytes":1048576,"us":534}
{"peer":"wire","test":"latency","bytes":4194304,"us":2000}
{"peer":"openmpi-tcp","test":"latency","bytes":65536,"us":100}
{"peer":"openmpi-tcp","test":"latency","bytes":1048576,"us":600}
{"peer":"openmpi-tcp","test":"bandwidth","bytes":1048576,"mb_s":2000}
{"peer":"openmpi-vader","test":"bandwidth","bytes":1048576,"mb_s":12000}
{"peer":"outrigger-tcp","test":"latency","bytes":8,"us":12}
{"peer":"outrigger-tcp","test":"latency","bytes":65536,"us":90}
{"peer":"outrigger-tcp","test":"latency","bytes":1048576,"us":720}
{"peer":"outrigger-tcp","test":"latency","bytes":4194304,"us":2700}
{"peer":"outrigger-tcp","test":"bandwidth","bytes":1048576,"mb_s":2000}
{"peer":"outrigger-tcp","test":"overlap","bytes":1048576,"side":"isend","mode":"one","overlap":0.8}
{"peer":"outrigger-tcp","test":"overlap","bytes":1048576,"side":"irecv","mode":"one","overlap":0.95}
{"peer":"outrigger-local","test":"latency","bytes":8,"us":1.5}
{"peer":"outrigger-local","test":"bandwidth","bytes":1048576,"mb_s":5999}
`

func read(t *testing.T, text string) figures {
	t.Helper()
	f, err := readFigures(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// words returns met, missed or absent for each target in order.
func words(verdicts []verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		switch {
		case len(v.missing) > 0:
			b.WriteByte('?')
		case v.met:
			b.WriteByte('+')
		default:
			b.WriteByte('-')
		}
	}
	return b.String()
}

func TestJudgeTakesTheBoundItselfAsMet(t *testing.T) {
	if got, want := words(judge(read(t, run1))), "++++++++++-++"; got != want {
		t.Errorf("verdicts %s, want %s", got, want)
	}
}

func TestJudgeMissesEveryTarget(t *testing.T) {
	slow := strings.NewReplacer(
		`"bytes":8,"us":12}`, `"bytes":8,"us":12.1}`,
		`"us":90}`, `"us":121}`,
		`"us":720}`, `"us":721}`,
		`"us":2700}`, `"us":2701}`,
		`"outrigger-tcp","test":"bandwidth","bytes":1048576,"mb_s":2000`, `"outrigger-tcp","test":"bandwidth","bytes":1048576,"mb_s":1999`,
		`"us":1.5}`, `"us":2.1}`,
		`"us":0.8}`, `"us":0.81}`,
		`"overlap":0.8}`, `"overlap":0.79}`,
		`"overlap":0.95}`, `"overlap":-0.1}`,
	).Replace(run1)
	if got, want := words(judge(read(t, slow))), "-------------"; got != want {
		t.Errorf("verdicts %s, want %s", got, want)
	}
}

func TestAbsentFigureIsNeitherMetNorMissed(t *testing.T) {
	verdicts := judge(read(t, `{"peer":"chain","test":"latency","bytes":64,"us":10}`))
	missed, absent := count(verdicts)
	if missed != 0 || absent != len(targets) {
		t.Errorf("%d missed and %d absent, want 0 and %d", missed, absent, len(targets))
	}
	want := []key{{peer: outriggerTCP, test: latency, bytes: 8}}
	if diff := cmp.Diff(want, verdicts[0].missing, cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("missing figures of the first target (-want +got):\n%s", diff)
	}
}

func TestRoundsCountWithTheirMedian(t *testing.T) {
	f := read(t, `{"peer":"p","test":"rate","bytes":8,"msg_s":5}
{"peer":"p","test":"rate","bytes":8,"msg_s":900}
{"peer":"p","test":"rate","bytes":8,"msg_s":7}`)
	if got, _ := f.median(key{peer: "p", test: rate, bytes: 8}); got != 7 {
		t.Errorf("median %g, want 7", got)
	}
	if got := median([]float64{4, 2}); got != 3 {
		t.Errorf("median of 4 and 2 is %g, want 3", got)
	}
}

// A target by round compares what was measured at about the same time.
func TestRatioByRound(t *testing.T) {
	if got := ratio([]float64{100, 500, 260}, []float64{100, 400, 100, 1}); got != 1.25 {
		t.Errorf("ratio %g, want 1.25", got)
	}
}

func TestMalformedLinesAreRefused(t *testing.T) {
	for _, text := range []string{
		`mpirun noticed that process rank 1 died`,
		`{"test":"latency","bytes":8,"us":1}`,
		`{"peer":"p","test":"latency","bytes":8,"mb_s":1}`,
		`{"peer":"p","test":"altitude","bytes":8,"us":1}`,
		`{"peer":"p","test":"latency","bytes":"8","us":1}`,
	} {
		if _, err := readFigures(strings.NewReader("\n" + text)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: error %v, want one that names line 2", text, err)
		}
	}
}

func TestRenderedTable(t *testing.T) {
	f := read(t, `{"peer":"outrigger-tcp","test":"latency","bytes":8,"us":12.345}
{"peer":"zeta","test":"latency","bytes":8,"us":150.2}
{"peer":"chain","test":"latency","bytes":64,"us":10}
{"peer":"outrigger-tcp","test":"overlap","bytes":1048576,"side":"irecv","mode":"both","overlap":-0.1}`)
	var b strings.Builder
	if err := render(&b, f, judge(f)[:2]); err != nil {
		t.Fatal(err)
	}
	want := `### Latency, us (half a round trip)

| | chain | outrigger-tcp | zeta |
|---|---:|---:|---:|
| 8 B |  | 12.3 | 150 |
| 64 B | 10.0 |  |  |

### Overlap of transfer and computing (1 is all hidden)

| | outrigger-tcp |
|---|---:|
| 1 MiB irecv, computing: both | -0.10 |

### Targets

| target | bound | figure | base | ratio | |
|---|---|---:|---:|---:|---|
| 8 B latency, two pods, against the bare chain | at most 1.2 | 12.3 | 10.0 | 1.23 | MISS |
| 64 KiB latency, two pods, against the bare wire, by round | at most 1.35 | | | | ABSENT: outrigger-tcp latency 64 KiB; wire latency 64 KiB |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
