package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFiguresInterrupted: Ctrl-C ends the experiments, and the error says that no figure is
// written.
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
	progress := bufio.NewScanner(pipe)
	progress.Scan() // the first part has begun
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	last := ""
	for progress.Scan() {
		last = progress.Text()
	}
	if err := cmd.Wait(); err == nil || out.Len() > 0 || !strings.Contains(last, "interrupted: no figure is written") {
		t.Errorf("%v\n%s%s", err, last, out.String())
	}
}

// TestFolderThatCannotBeCreated: the error comes before any calculation or measurement,
// and names the flag for another folder.
func TestFolderThatCannotBeCreated(t *testing.T) {
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
		if err == nil || bytes.Count(out, []byte("\n")) != 1 || !strings.Contains(string(out), " a folder that you may create or write to") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// TestNoiseIsNamed: if two settings do not differ on a link, the table of their gains says
// so.
func TestNoiseIsNamed(t *testing.T) {
	if out := output(t, "bench", "onesided", "--quick"); !strings.Contains(out, "noise") {
		t.Errorf("%s", out)
	}
}

// TestDocsNameEveryCommand: the table of running.md has every command.
func TestDocsNameEveryCommand(t *testing.T) {
	text, err := os.ReadFile("../../../docs/running.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if !c.Hidden && !strings.Contains(string(text), "\n| `outrigger "+c.Name()+"` |") {
			t.Errorf("docs/running.md does not have %s", c.Name())
		}
	}
}
