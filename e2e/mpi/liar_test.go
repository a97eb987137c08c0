//go:build mpi

package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lies runs testdata/liar.c, whose sidecar violates the protocol, with the provider in dir.
func lies(t *testing.T, dir string, flags ...string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "liar")
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I../../clientlib/c/src", "-o", program, "testdata/liar.c"}, flags...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, "-lfabric")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	quiet := filepath.Join(t.TempDir(), "suppressed") // leaks of libfabric itself
	if err := os.WriteFile(quiet, []byte("leak:libfabric\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, filepath.Join(t.TempDir(), "s"))
	cmd.Env = append(os.Environ(), "FI_PROVIDER_PATH="+dir, "FI_PROVIDER=outrigger", "LSAN_OPTIONS=suppressions="+quiet)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "no call reported the second completion") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLyingSidecar checks that the provider ignores completions of a sidecar after a protocol
// violation, and that closing the endpoint then frees everything.
func TestLyingSidecar(t *testing.T) {
	t.Run("plain", func(t *testing.T) { lies(t, at(t, "c")) })
	t.Run("sanitized", func(t *testing.T) {
		const sanitizer = "address,undefined"
		lies(t, sanitized(t, sanitizer, "provider"), "-fsanitize="+sanitizer, "-fno-sanitize-recover=all")
	})
}
