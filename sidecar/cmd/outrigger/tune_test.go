package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/manifest"
)

// algorithmsIn returns the algorithms of each collective in a report, sorted.
func algorithmsIn(t *testing.T, report string) map[string][]string {
	t.Helper()
	_, table, found := strings.Cut(report, "Collectives: calls of ranks by algorithm\n")
	if !found {
		t.Fatalf("no table of collectives in\n%s", report)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	all := map[string][]string{}
	for _, line := range strings.Split(table, "\n")[1:] {
		words := strings.Fields(line)
		all[words[0]] = append(all[words[0]], words[1])
	}
	for _, list := range all {
		slices.Sort(list)
	}
	return all
}

// TestBenchTunes measures a small job, and runs a job of that shape by the table: each collective
// uses the algorithms that the table names, and no other.
func TestBenchTunes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuned.yaml")
	if out := output(t, "bench", "collectives", "--tune", "--quick", "-n", "3", "--pods", "2", "--bytes-max", "512", "-o", file); out != "" {
		t.Errorf("on standard output:\n%s", out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := manifest.ReadCollectives(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want, last := map[string][]string{}, map[string]bootstrap.CollectiveRule{}
	for _, r := range rules {
		if list := want[r.Collective]; !slices.Contains(list, r.Algorithm) {
			want[r.Collective] = append(list, r.Algorithm)
		}
		last[r.Collective] = r
	}
	out := output(t, "run", "-n", "3", "--pods", "2", "--collectives", file, "--report", "--no-status", "--no-prefix", "--",
		filepath.Join(bin, "outrigger"), "bench-rank", "--tests", "collectives", "--quick", "--bytes-max", "512", "--ops", strings.Join(bootstrap.Collectives, ","))
	got := algorithmsIn(t, out)
	for _, name := range bootstrap.Collectives {
		most := map[string]int64{"barrier": 0, "reduce-scatter": 3 * 512}
		bytes, special := most[name]
		if !special {
			bytes = 512
		}
		if r := last[name]; r.Ranks != 3 || r.Pods != 2 || r.MaxBytes != bytes {
			t.Errorf("the last rule of %s is %+v, want one for 3 ranks in 2 pods and up to %d bytes", name, r, bytes)
		}
		slices.Sort(want[name])
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s has used %v, the table has %v\n%s", name, got[name], want[name], text)
		}
	}
}

func TestTuneRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"want collectives alone":            {"latency", "collectives", "--tune"},
		"leave out --json and --plots":      {"collectives", "--tune", "--json"},
		"--pods 5: want 1 to the 4 ranks":   {"collectives", "--tune", "--pods", "5"},
		"--output is for --tune":            {"collectives", "-o", "x"},
		"--output: open /nowhere/t.yaml: n": {"collectives", "--tune", "-o", "/nowhere/t.yaml"},
	} {
		out, err := program(t, append([]string{"bench", "--quick"}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, %s, want %q", args, err, out, want)
		}
	}
}

// TestJobNamesAlgorithms runs the example of the documents by --collectives, and as the profile of
// a job file.
func TestJobNamesAlgorithms(t *testing.T) {
	const example = "../../../docs/examples/collectives.yaml"
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	rank := []string{filepath.Join(bin, "outrigger"), "bench-rank", "--tests", "collectives", "--quick", "--bytes-max", "32768", "--ops", "allreduce,bcast"}
	file := filepath.Join(t.TempDir(), "job.yaml")
	job := string(text) + `---
apiVersion: outrigger.dev/v1alpha1
kind: MPIJob
metadata: {name: tuned}
spec:
  ranks: 4
  ranksPerPod: 2
  profileName: collectives
  template:
    spec:
      containers:
      - {name: rank, image: none, command: [rank]}
`
	if err := os.WriteFile(file, []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-n", "4", "--pods", "2", "--collectives", example}, {"-f", file, "--quiet-ignored"}} {
		args = append(append([]string{"run", "--report", "--no-status", "--no-prefix"}, args...), "--")
		got := algorithmsIn(t, output(t, append(args, rank...)...))
		for name, want := range map[string][]string{"allreduce": {"recursive-doubling", "ring"}, "barrier": {"dissemination"}, "bcast": {"two-level"}} {
			if !slices.Equal(got[name], want) {
				t.Errorf("%q: %s has used %v, want %v", args, name, got[name], want)
			}
		}
	}
}
