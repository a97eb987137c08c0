package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocument compares the document with the one that the comments and definitions give.
func TestDocument(t *testing.T) {
	want, err := reference("../..")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../docs/mpijob-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("docs/mpijob-reference.md is not what `make gen` writes (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestComments(t *testing.T) {
	s, err := parse(write(t, `// Package a is not in the document.
//
// # One
//
// See docs/mpi.md.
// +claim of memory: a/b TestC
//
// # Two
//
//   - item
package a

const (
	// ReasonA: what it
	// means.
	// +claim of ranks: a TestB
	//
	// Remedy: do
	// this.
	ReasonA = "A"
	other   = "B"
)
`))
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.constants("Reason", "")
	if err != nil {
		t.Fatal(err)
	}
	const rows = "| | meaning | what to do |\n|---|---|---|\n| `A` | what it means.<!-- claim of ranks: a TestB --> | do this. |\n"
	if diff := cmp.Diff(rows, table(found, true)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	const sections = "\n## One\n\nSee [mpi.md](mpi.md).<!-- claim of memory: a/b TestC -->\n\n## Two\n\n  - item\n"
	if diff := cmp.Diff(sections, s.sections()); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
}

func TestCommentsThatDoNotExplain(t *testing.T) {
	for text, want := range map[string]string{
		"package a\n\n// A is a reason.\nconst A Reason = \"A\"\n": `does not begin with "A: "`,
		"package a\n\nconst A Reason = \"A\"\n":                    `does not begin with "A: "`,
		"package a\n\nconst A = \"A\"\n":                           "no constants",
	} {
		s, err := parse(write(t, text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.constants("", "Reason"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}
