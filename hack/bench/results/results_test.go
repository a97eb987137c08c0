package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const docs = "../../../docs"

// TestDocuments checks that the documents have the figures of the files of results.
func TestDocuments(t *testing.T) {
	texts, err := documents(docs)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range texts {
		have, err := os.ReadFile(filepath.Join(docs, file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(have)); diff != "" {
			t.Errorf("docs/%s is not what `make gen` writes (-want +got):\n%s", file, diff)
		}
	}
}

const example = `{
  "command": "measure", "date": "2026-11-28", "commit": "abc", "machine": "a machine",
  "tables": [{
    "title": "Latency", "columns": ["before", "now"],
    "rows": [
      {"name": "8 B", "unit": "us", "values": [null, 4.0], "target": {"atMost": 4, "source": "paper"}},
      {"name": "64 B", "values": [[1, 2.50], {"value": 3, "ratio": 1.5}]},
      {"name": "1 KiB", "values": [{"value": 3, "least": 1, "most": 9}, {"least": 5, "most": 7}], "target": {"atLeast": 6}},
      {"name": "1 MiB", "values": [{"value": 3, "ratio": 2}, {"value": 3, "ratio": 0.5}], "target": {"atMost": 1, "of": ["now"], "ratio": true}}
    ]}]}`

const rendered = "`measure`, 2026-11-28, abc, a machine.\n" + `
Latency:

| | before | now | target | |
|---|---:|---:|---|---|
| 8 B, us |  | 4.0 | at most 4 (paper) | met |
| 64 B | 1, 2.50 | 3 (1.5) | | |
| 1 KiB | 3 (1 to 9) | 5 to 7 | at least 6 | **missed** |
| 1 MiB | 3 (2) | 3 (0.5) | at most 1 | met |
`

func TestRender(t *testing.T) {
	r, err := parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	fillIn := func(list, results string) string {
		return "# Title\n<!-- results: missed -->\n" + list + "<!-- end -->\n\n<!-- results: a -->\n" + results + "<!-- end -->\nend\n"
	}
	got, placed, err := fill(fillIn("", "old\n"), map[string]*run{"a": r})
	if err != nil {
		t.Fatal(err)
	}
	want := fillIn("2 of 3 targets are met. Missed, by run:\n- a: 1 KiB\n", rendered)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a"}, placed); diff != "" {
		t.Errorf("runs with a place (-want +got):\n%s", diff)
	}
}

// TestOutdated: the targets of an outdated run are not counted.
func TestOutdated(t *testing.T) {
	r, err := parse([]byte(strings.Replace(example, `{`, `{"outdated": "It was before.",`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.render(); !strings.Contains(got, "**Outdated:** It was before.\n") {
		t.Errorf("%s", got)
	}
	if got, want := missed(map[string]*run{"a": r}), "0 of 0 targets are met. Missed, by run:\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMissedByTheCommand: a rounded figure may look as if it met its target.
func TestMissedByTheCommand(t *testing.T) {
	r, err := parse([]byte(strings.Replace(example, `"atMost": 4,`, `"atMost": 4, "missed": true,`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.render(); !strings.Contains(got, "| at most 4 (paper) | **missed** |") {
		t.Errorf("%s", got)
	}
}

func TestOneColumnMisses(t *testing.T) {
	r, err := parse([]byte(strings.Replace(example, `"atLeast": 6`, `"atLeast": 4`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.render(); !strings.Contains(got, "| at least 4 | **missed:** before |") {
		t.Errorf("%s", got)
	}
}

func TestMalformedResultsAreRefused(t *testing.T) {
	for from, to := range map[string]string{
		`"command": "measure", `:    ``,
		`"commit"`:                  `"comit"`,
		`[null, 4.0]`:               `[4.0]`,
		`"least": 5, `:              ``,
		`"atLeast": 6`:              `"of": ["now"]`,
		`"of": ["now"]`:             `"of": ["later"]`,
		`[1, 2.50]`:                 `"one"`,
		`{"value": 3, "ratio": 1.5`: `{"value": 3, "rate": 1.5`,
	} {
		if _, err := parse([]byte(strings.Replace(example, from, to, 1))); err == nil {
			t.Errorf("%s in the place of %s: no error", to, from)
		}
	}
}

func TestPlacesOfNoRun(t *testing.T) {
	r, err := parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	const at = "<!-- results: a -->\n<!-- end -->\n"
	for text, runs := range map[string]map[string]*run{
		at:      {},
		at + at: {"a": r},
	} {
		if _, _, err := fill(text, runs); err == nil {
			t.Errorf("%q with %d files: no error", text, len(runs))
		}
	}
}

func TestRunsWithoutAPlace(t *testing.T) {
	r, err := parse([]byte(strings.Replace(example, `{`, `{"about": "What it is.",`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	got := rest(map[string]*run{"a": r, "b": r}, []string{"a"})
	if _, results, _ := strings.Cut(got, "\n\n## b\n\n"); results != "What it is.\n\n"+rendered || strings.Contains(got, "## a") {
		t.Errorf("%s", got)
	}
}
