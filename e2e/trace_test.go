package e2e

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTraceOfCG checks the timeline of NPB CG on 4 ranks in 2 pods: it has the format's
// fields, nesting and arrows, the calls, the messages of both links, and the turns, and its
// times are those of the report.
func TestTraceOfCG(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cg.json")
	code, report := startWith(t, []string{"--trace", file}, 4, 2, filepath.Join(bin, "npb"), "-class", "S", "cg").wait()
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, report)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "trace", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`^(\d+) calls, \d+ ends of messages \((\d+) local, (\d+) between pods\), (\d+) arrows, (\d+) turns of 2 engines; 0 older`).FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("%s", out)
	}
	for _, n := range m[1:] {
		if number(t, n) < 100 {
			t.Errorf("too few of something: %s", m[0])
		}
	}
	// A message has two ends, and each end has an arrow.
	if ends, arrows := number(t, m[2])+number(t, m[3]), number(t, m[4]); ends != 2*arrows {
		t.Errorf("%d ends of messages, %d arrows", ends, arrows)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The phases of the start: two of each pod, and one of each rank.
	for phase, want := range map[string]int{`"sidecars are started"`: 2, `"the launcher waits for its sidecar and prepares the ranks"`: 2, `"from its process to its first call"`: 4} {
		if n := strings.Count(string(raw), phase); n != want {
			t.Errorf("the timeline has %s %d times, want %d", phase, n, want)
		}
	}
	for rank := range 4 {
		line, said := timesOf(t, string(out), "in calls, s", rank, 2), timesOf(t, report, "in calls", rank, 3)
		attached, in, waiting := said[0], said[1], said[2]
		if differs(line[0], in) || differs(line[1], waiting) {
			t.Errorf("rank %d: the timeline says %v s in calls and waiting, the report %v", rank, line, said[1:])
		}
		if waiting <= 0 || waiting > in || in > attached*1.01 {
			t.Errorf("rank %d: attached, in calls, waiting: %v s", rank, said)
		}
	}
	for _, want := range []string{"Calls of the ranks\n", "Longest waits\n  rank ", "What carried it: "} {
		if !strings.Contains(report, want) {
			t.Errorf("the report does not say %q\n%s", want, report)
		}
	}
}

// TestTraceOntoAFullDisk checks that a job whose timeline cannot be written has not failed: it
// ends with a warning and the exit code for that, and its ranks' output is complete.
func TestTraceOntoAFullDisk(t *testing.T) {
	t.Parallel()
	code, out := startWith(t, []string{"--trace", "/dev/full"}, 2, 2, ring("-rounds", "10")...).wait()
	if code != 74 || strings.Contains(out, "job failed") || !strings.Contains(out, "every byte right") ||
		!strings.Contains(out, "outrigger: warning: all ranks have ended well, but the trace is not written: write /dev/full: no space left on device; make room, or give --trace another file\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// differs by more than a hundredth, and the last digit of the report.
func differs(a, b float64) bool { return math.Abs(a-b) > 0.01*max(a, b)+0.0006 }

// timesOf returns the figures of a rank's line in the table with a heading.
func timesOf(t *testing.T, out, heading string, rank, n int) []float64 {
	t.Helper()
	_, table, _ := strings.Cut(out, heading)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) != n+1 || fields[0] != fmt.Sprint(rank) {
			continue
		}
		s := make([]float64, n)
		for i := range s {
			if _, err := fmt.Sscan(fields[i+1], &s[i]); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	t.Fatalf("no times of rank %d in\n%s", rank, out)
	return nil
}

// TestTraceOfAFailure checks that a job that was ended has a timeline, which names what is
// missing, and that a file that is no timeline is refused.
func TestTraceOfAFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hang.json")
	code, said := startWith(t, []string{"--trace", file, "--timeout", "2s"}, 2, 2, os.Args[0], hangingCommand, "wrong tag").wait()
	if code != 124 {
		t.Fatalf("exit code %d\n%s", code, said)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "trace", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "rank  in calls, s  waiting, s") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), filepath.Join(bin, "outrigger"), "trace", os.Args[0]).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is no trace") {
		t.Errorf("%v\n%s", err, out)
	}
}
