package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRecord: a file of a run has what the benchmark has printed, and the description and
// targets of the file before.
func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	earlier := `{"about": "What it is.", "command": "old", "date": "2026-01-01", "tables": [{"title": "Latency, us", "columns": ["x"],
		"rows": [{"name": "8 B", "values": [9], "target": {"atMost": 5, "missed": true}}, {"name": "64 B", "values": [9]}]}]}`
	if err := os.WriteFile(file, []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	const printed = `- date: today

### Latency, us

| | x | y |
|---|---:|---:|
| 8 B | 4.20 | 3.1 (0.74) |
| **all** | | 1.5 (1.2-1.9) |

### Targets

| target | bound | figure | base | ratio | |
|---|---|---:|---:|---:|---|
| 8 B | at most 0.8 | 0.80 | | | MISS |
| 1 MiB, by round | at least 1 | 5744 | 4750 | 1.21 | PASS |
`
	if err := record(file, strings.NewReader(printed), "measure", "three rounds"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if r.About != "What it is." || r.Command != "measure" || r.Conditions != "three rounds" || r.Machine == "" {
		t.Errorf("%+v", r)
	}
	_, got, _ := strings.Cut(r.render(), "\n")
	const want = `
Latency, us:

| | x | y | target | |
|---|---:|---:|---|---|
| 8 B | 4.20 | 3.1 (0.74) | at most 5 | met |
| all |  | 1.5 (1.2 to 1.9) | | |

Targets:

| | figure | base | ratio | target | |
|---|---:|---:|---:|---|---|
| 8 B | 0.80 |  |  | at most 0.8 | **missed** |
| 1 MiB, by round | 5744 | 4750 | 1.21 | at least 1 | met |
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rendered (-want +got):\n%s", diff)
	}
}

func TestRecordRefuses(t *testing.T) {
	for printed, want := range map[string]string{
		"no table":                      "no table",
		"| | x |\n|---|---|\n| a | b |": `"b" is not a number`,
		"| | x |\n|---|---|\n| a |":     "1 cells",
		"| t | bound | figure | |\n|---|---|---|---|\n| a | at most 1 | | ABSENT: x |": "ABSENT",
		"| t | bound | figure |\n|---|---|---|\n| a | below 1 | 2 |":                   "at most N",
	} {
		file := filepath.Join(t.TempDir(), "a.json")
		if err := record(file, strings.NewReader(printed), "measure", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", printed, err, want)
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%q: a file was written", printed)
		}
	}
}
