package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFirstProgram is the walk of docs/first-program.md: its programs in Go and C, its
// commands, with this checkout.
func TestFirstProgram(t *testing.T) {
	raw, err := os.ReadFile("../docs/first-program.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	var blocks [][]byte // commands, the program, commands
	for _, m := range regexp.MustCompile("(?sm)^```\\w*\n(.*?)^```$").FindAllSubmatch(raw, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) < 3 { // the cluster's are those of e2e/walk
		t.Fatalf("the document has %d blocks, want 3 and more", len(blocks))
	}
	dir := t.TempDir()
	shell := func(commands string) string {
		commands = strings.ReplaceAll(commands, "/path/to/outrigger/bin/", bin+"/")
		commands = strings.ReplaceAll(commands, "/path/to/outrigger", root)
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-euc", "cd "+dir+"; [ ! -d solver ] || cd solver\n"+commands)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", commands, err, out)
		}
		return string(out)
	}
	shell(string(blocks[0]))
	if err := os.WriteFile(filepath.Join(dir, "solver", "main.go"), blocks[1], 0o600); err != nil {
		t.Fatal(err)
	}
	out := shell(string(blocks[2]))
	for _, want := range []string{"[0] rank 0 of 4: the ranks add up to 6\n", "[3] rank 3 of 4: the ranks add up to 6\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	build := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "c"))
	build.Env = append(build.Environ(), "OUT="+filepath.Join(bin, "c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	inC := blocks[len(blocks)-2:] // the program, commands
	if err := os.WriteFile(filepath.Join(dir, "solver", "ring.c"), inC[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if out := shell(string(inC[1])); !strings.Contains(out, "[0] rank 0 of 4 has 3\n") || !strings.Contains(out, "[3] rank 3 of 4 has 2\n") {
		t.Errorf("ranks in C have printed %q", out)
	}
}
