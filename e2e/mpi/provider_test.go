//go:build mpi

package mpi

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// callProvider runs testdata/provider, which goes through every call of the
// provider in dir, by libfabric. progress is OUTRIGGER_MPI_PROGRESS.
func callProvider(t *testing.T, pods int, dir, progress string, flags ...string) {
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
	env := []string{"FI_PROVIDER_PATH=" + dir, "FI_PROVIDER=outrigger", "ASAN_OPTIONS=detect_leaks=0", names.EnvMPIProgress + "=" + progress}
	out := job{ranks: 2, pods: pods, mpi: "none", env: env}.mustRun(t, "rank 0 is content", program, t.TempDir())
	if !strings.Contains(out, "rank 1 is content") {
		t.Error(out)
	}
}

// TestProvider goes through every call and flag.
func TestProvider(t *testing.T) {
	for _, pods := range []int{1, 2} {
		t.Run(fmt.Sprintf("pods=%d", pods), func(t *testing.T) { callProvider(t, pods, at(t, "c"), "off") })
	}
	t.Run("pods=2/messages", func(t *testing.T) { callProvider(t, 2, at(t, "c"), "messages") })
	t.Run("sanitized", func(t *testing.T) {
		const sanitizer = "address,undefined"
		dir := sanitized(t, sanitizer, "provider")
		for _, progress := range []string{"off", "messages"} {
			t.Run(progress, func(t *testing.T) {
				callProvider(t, 2, dir, progress, "-fsanitize="+sanitizer, "-fno-sanitize-recover=all")
			})
		}
	})
}
