//go:build mpi

package mpi

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// callProvider runs testdata/provider, which goes through every call of the
// provider in dir, by libfabric.
func callProvider(t *testing.T, pods int, dir string, flags ...string) {
	t.Helper()
	sources, err := filepath.Glob("testdata/provider/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	program := filepath.Join(t.TempDir(), "provider")
	args := append([]string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", program}, append(flags, sources...)...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, "-lfabric")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// What libfabric itself keeps until the end is not ours.
	env := []string{"FI_PROVIDER_PATH=" + dir, "FI_PROVIDER=outrigger", "ASAN_OPTIONS=detect_leaks=0"}
	out := job{ranks: 2, pods: pods, mpi: "none", env: env}.mustRun(t, "rank 0 is content", program, t.TempDir())
	if !strings.Contains(out, "rank 1 is content") {
		t.Error(out)
	}
}

// TestProvider goes through every call and flag.
func TestProvider(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) { callProvider(t, pods, at(t, "c")) })
	}
	t.Run("sanitized", func(t *testing.T) {
		const sanitizer = "address,undefined"
		callProvider(t, 2, sanitized(t, sanitizer, "provider"), "-fsanitize="+sanitizer, "-fno-sanitize-recover=all")
	})
}
