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

// TestFiguresNowhere: a folder that cannot be made is told before the figures are
// calculated, and how to name another.
func TestFiguresNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := program(t, "figures", "-o", file).CombinedOutput()
	if err == nil || strings.Contains(string(out), "ping-pong") || !strings.Contains(string(out), "-o names a folder") {
		t.Errorf("%v, %s", err, out)
	}
}
