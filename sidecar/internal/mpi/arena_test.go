package mpi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// TestPlacement: what a job says of its allocations becomes a library before all
// others and a size in bytes, or an error.
func TestPlacement(t *testing.T) {
	dir := libraries(t)
	t.Setenv(names.EnvMPIArena, "on")
	if _, err := wishes(MPICH, dir); err == nil || !strings.Contains(err.Error(), allocFile) {
		t.Errorf("without the library: %v", err)
	}
	library := filepath.Join(dir, allocFile)
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for said, bytes := range map[string]string{"": "", "off": "", "on": "65536", "4KiB": "4096", "1MiB": "1048576", "100000": "100000"} {
		t.Setenv(names.EnvMPIArena, said)
		want := wished(dir, nil)
		if bytes != "" {
			want = wished(dir, []string{names.EnvMPIArena + "=" + bytes}, allocFile)
		}
		if env, err := wishes(MPICH, dir); err != nil || !slices.Equal(env, want) {
			t.Errorf("%q: %q, %v, want %q", said, env, err, want)
		}
	}
	for _, said := range []string{"yes", "1", "4095", "-1", "64 GB of it"} {
		t.Setenv(names.EnvMPIArena, said)
		if env, err := wishes(MPICH, dir); err == nil || !strings.Contains(err.Error(), "want on, off") {
			t.Errorf("%q: %q, %v", said, env, err)
		}
	}
}
