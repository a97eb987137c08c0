package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFiguresInterrupted: Ctrl-C ends the figures, and says that there are none.
func TestFiguresInterrupted(t *testing.T) {
	cmd := program(t, "figures")
	var out bytes.Buffer
	cmd.Stdout = &out
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(pipe)
	said.Scan() // the first part has begun
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	last := ""
	for said.Scan() {
		last = said.Text()
	}
	if err := cmd.Wait(); err == nil || out.Len() > 0 || !strings.Contains(last, "interrupted: no figure is written") {
		t.Errorf("%v\n%s%s", err, last, out.String())
	}
}

// TestFolderThatCannotBeMade is told before anything is calculated or measured, with
// how to name another.
func TestFolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"figures", "-o", file},
		{"bench", "reuse", "--quick", "--plots", file},
		{"run", "--plots", file, "--", "/bin/true"},
	} {
		out, err := program(t, args...).CombinedOutput()
		if err == nil || bytes.Count(out, []byte("\n")) != 1 || !strings.Contains(string(out), " names a folder") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// TestNoiseIsSaid: where two settings are one, the table of their gains says so.
func TestNoiseIsSaid(t *testing.T) {
	if out := output(t, "bench", "onesided", "--quick"); !strings.Contains(out, "noise") {
		t.Errorf("%s", out)
	}
}

// TestDocsNameEveryCommand holds the table of running.md, and the README's list, against
// the commands that there are.
func TestDocsNameEveryCommand(t *testing.T) {
	for file, begins := range map[string]string{"README.md": "- `outrigger run`, ", "docs/running.md": "| `outrigger "} {
		text, err := os.ReadFile(filepath.Join("../../..", file))
		if err != nil {
			t.Fatal(err)
		}
		var said string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, begins) {
				said += strings.ReplaceAll(line, "`outrigger ", "`")
			}
		}
		for _, c := range commands() {
			if !c.Hidden && !strings.Contains(said, "`"+c.Name()+"`") {
				t.Errorf("%s does not name %s", file, c.Name())
			}
		}
	}
}
