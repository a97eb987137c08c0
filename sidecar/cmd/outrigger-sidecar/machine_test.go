package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Sidecars of one job on one machine have one number, and nobody else has it.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("one", "5f1c\n"), file("two", "77ab\n")
	own := machine("job", one)
	if own == 0 || own != machine("job", one) {
		t.Errorf("%d, and then %d", own, machine("job", one))
	}
	if own == machine("other", one) || own == machine("job", two) {
		t.Error("another job, or another machine, has the same number")
	}
	if n := machine("job", filepath.Join(dir, "none")); n != 0 {
		t.Errorf("%d where the kernel does not say, want 0", n)
	}
	if n := machine("job", file("empty", "\n")); n != 0 {
		t.Errorf("%d where the kernel says nothing, want 0", n)
	}
	if machine("job", bootID) == 0 {
		t.Error("this machine has no number")
	}
}
