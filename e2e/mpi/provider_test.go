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

// buildProvider builds testdata/provider, which calls the provider in dir through libfabric, and
// returns the program and its environment. progress is the value of OUTRIGGER_MPI_PROGRESS.
func buildProvider(t *testing.T, dir, progress string, flags ...string) (program string, env []string) {
	t.Helper()
	sources, err := filepath.Glob("testdata/provider/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	program = filepath.Join(t.TempDir(), "provider")
	args := append([]string{"-std=gnu11", "-O1", "-g", "-rdynamic", "-Wall", "-Wextra", "-Werror", "-o", program}, append(flags, sources...)...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, "-lfabric")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Leaks are not checked, because libfabric has some.
	return program, []string{"FI_PROVIDER_PATH=" + dir, "FI_PROVIDER=outrigger", "ASAN_OPTIONS=detect_leaks=0", names.EnvMPIProgress + "=" + progress}
}

// callProvider runs testdata/provider, which tests every call.
func callProvider(t *testing.T, pods int, dir, progress string, flags ...string) {
	t.Helper()
	program, env := buildProvider(t, dir, progress, flags...)
	out := job{ranks: 2, pods: pods, mpi: "none", env: env}.mustRun(t, "rank 0 is content", program, t.TempDir())
	if !strings.Contains(out, "rank 1 is content") {
		t.Error(out)
	}
}

// TestProviderBereft checks that untagged receives of other ranks fail, like tagged ones, when a
// rank has ended without closing its session.
func TestProviderBereft(t *testing.T) {
	program, env := buildProvider(t, at(t, "c"), "off")
	code, out := job{ranks: 2, pods: 2, mpi: "none", env: env}.run(t, program, t.TempDir(), "bereft")
	if code != 7 || !strings.Contains(out, "rank 0 has heard of it") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestProviderOrphaned checks that each open operation of a rank gets an error when its sidecar has
// ended.
func TestProviderOrphaned(t *testing.T) {
	program, env := buildProvider(t, at(t, "c"), "off")
	code, out := job{ranks: 2, pods: 2, mpi: "none", env: env}.run(t, program, t.TempDir(), "orphaned")
	if code == 0 || !strings.Contains(out, "rank 0 has lost its sidecar") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// TestProviderEmptyPolls checks that the first empty polls after a completion do not sleep, and that
// those of a rank that waits do.
func TestProviderEmptyPolls(t *testing.T) {
	for _, progress := range []string{"off", "messages"} {
		t.Run(progress, func(t *testing.T) {
			program, env := buildProvider(t, at(t, "c"), progress)
			out := job{ranks: 2, pods: 2, mpi: "none", env: env}.mustRun(t, "rank 0 is content", program, t.TempDir(), "empty-polls")
			if !strings.Contains(out, "rank 1 is content") {
				t.Error(out)
			}
		})
	}
}

// TestProvider tests every call and flag of the provider.
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

// TestEnabledAgain checks that a process that has closed all its objects of libfabric can open them
// again and is the same rank, at whatever point the other ranks of its pod are.
func TestEnabledAgain(t *testing.T) {
	program := filepath.Join(t.TempDir(), "enables")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-O1", "-Wall", "-Werror", "-o", program, "testdata/enables.c", "-lfabric").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, pods := range []int{1, 2} {
		out := job{ranks: 2, pods: pods, mpi: "none", env: []string{"FI_PROVIDER_PATH=" + at(t, "c")}}.mustRun(t, "enabled 5 times", program)
		if n := strings.Count(out, "enabled 5 times"); n != 2 {
			t.Errorf("%d ranks were enabled, want 2\n%s", n, out)
		}
	}
}
