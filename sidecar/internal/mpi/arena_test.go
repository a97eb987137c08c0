package mpi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestPlacement checks that a job's request for its allocations becomes a preloaded library
// and a size in bytes, or an error.
func TestPlacement(t *testing.T) {
	dir := libraries(t)
	t.Setenv(names.EnvMPIArena, "on")
	if _, err := settings(MPICH, dir); err == nil || !strings.Contains(err.Error(), allocFile) {
		t.Errorf("without the library: %v", err)
	}
	library := filepath.Join(dir, allocFile)
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for given, bytes := range map[string]string{"": "", "off": "", "on": "65536", "4KiB": "4096", "1MiB": "1048576", "100000": "100000"} {
		t.Setenv(names.EnvMPIArena, given)
		want := extra(dir, nil)
		if bytes != "" {
			want = extra(dir, []string{names.EnvMPIArena + "=" + bytes}, allocFile)
		}
		if env, err := settings(MPICH, dir); err != nil || !slices.Equal(env, want) {
			t.Errorf("%q: %q, %v, want %q", given, env, err, want)
		}
	}
	for _, given := range []string{"yes", "1", "4095", "-1", "64 GB of it"} {
		t.Setenv(names.EnvMPIArena, given)
		if env, err := settings(MPICH, dir); err == nil || !strings.Contains(err.Error(), "want on, off") {
			t.Errorf("%q: %q, %v", given, env, err)
		}
	}
}
