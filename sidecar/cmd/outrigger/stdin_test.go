package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStandardInput: rank 0 reads each byte of outrigger's standard input, and other ranks
// read none. Data that rank 0 does not read remains for the next program of a script.
func TestStandardInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in")
	deck := bytes.Repeat([]byte("a line of the deck\n"), 20_000)
	if err := os.WriteFile(file, deck, 0o600); err != nil {
		t.Fatal(err)
	}
	count := func(pods string) string {
		in, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = in.Close() }() // only read
		cmd := program(t, "run", "-n", "3", "--pods", pods, "--", "/bin/sh", "-c", `echo "rank $OUTRIGGER_RANK: $(wc -c)"`)
		cmd.Stdin = in
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	for _, pods := range []string{"1", "3"} {
		if out := count(pods); !strings.Contains(out, "rank 0: 380000") || !strings.Contains(out, "rank 1: 0") || !strings.Contains(out, "rank 2: 0") {
			t.Errorf("%s pods:\n%s", pods, out)
		}
	}
	cmd := program(t, "run", "-n", "2", "--", "/bin/true")
	script := "read first; " + strings.Join(cmd.Args, " ") + "; read second; echo $first, $second"
	cmd.Path, cmd.Args, cmd.Stdin = "/bin/sh", []string{"sh", "-c", script}, strings.NewReader("one\ntwo\n")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "one, two\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStdinFile: rank 0 reads the file that an MPIJob names; if it is missing, the error
// names it.
func TestStdinFile(t *testing.T) {
	dir := t.TempDir()
	file, job := filepath.Join(dir, "in.deck"), filepath.Join(dir, "job.yaml")
	text := "apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: deck}\nspec:\n  ranks: 2\n  stdinFile: " + file +
		"\n  template: {spec: {containers: [{name: c, image: i, command: [/bin/sh, -c, 'echo \"$OUTRIGGER_RANK reads $(cat)\"']}]}}\n"
	for path, content := range map[string]string{file: "the deck", job: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := output(t, "run", "-f", job); !strings.Contains(out, "0 reads the deck") || strings.Contains(out, "1 reads the deck") {
		t.Error(out)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"standard input of rank 0: open " + file, "reason: CannotStart", "rank: 0"} {
		if out, err := program(t, "run", "-f", job, "--status", "-").CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("no %q: %v\n%s", want, err, out)
		}
	}
}

// TestStdinFileAgain: after a restart rank 0 reads the whole file again.
func TestStdinFileAgain(t *testing.T) {
	dir := t.TempDir()
	file, job, read := filepath.Join(dir, "in.deck"), filepath.Join(dir, "job.yaml"), filepath.Join(dir, "read")
	text := "apiVersion: outrigger.dev/v1alpha1\nkind: MPIJob\nmetadata: {name: deck}\nspec:\n  ranks: 1\n  stdinFile: " + file +
		"\n  runPolicy: {restartLimit: 1}\n  template: {spec: {containers: [{name: c, image: i, command: [/bin/sh, -c, 'wc -c >>" + read + "; test $(wc -l <" + read + ") = 2']}]}}\n"
	for path, content := range map[string]string{file: strings.Repeat("a line of the deck\n", 10_000), job: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := output(t, "run", "-f", job) // the first attempt fails
	if counts, err := os.ReadFile(read); err != nil || string(counts) != "190000\n190000\n" {
		t.Errorf("the attempts have read %q bytes, want 190000 each: %v\n%s", counts, err, out)
	}
}
