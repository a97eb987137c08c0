package mpi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// libraries makes a folder with files of these names, and nothing else wished for.
func libraries(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"LD_PRELOAD", names.EnvMPIArena, names.EnvMPIProgress} {
		t.Setenv(name, "")
	}
	return dir
}

func TestProgressing(t *testing.T) {
	const mpich, open = "MPIR_CVAR_DEFAULT_THREAD_LEVEL=MPI_THREAD_SERIALIZED", "OMPI_MPI_THREAD_LEVEL=2"
	dir := libraries(t, stepsFile)
	load := "LD_PRELOAD=" + filepath.Join(dir, stepsFile)
	for _, c := range []struct {
		said   string
		family Family
		want   []string
	}{
		{"", Auto, nil},
		{"off", MPICH, nil},
		{"messages", OpenMPI, nil},
		{"all", Auto, []string{mpich, open, load}},
		{"all", MPICH, []string{mpich, load}},
		{"all", Intel, []string{mpich, load}},
		{"all", OpenMPI, []string{open, load}},
	} {
		t.Setenv(names.EnvMPIProgress, c.said)
		if env, err := wishes(c.family, dir); err != nil || !slices.Equal(env, c.want) {
			t.Errorf("%q for %v: %q, %v, want %q", c.said, c.family, env, err, c.want)
		}
	}
	for _, said := range []string{"on", "1", "ALL"} {
		t.Setenv(names.EnvMPIProgress, said)
		if env, err := wishes(Auto, dir); err == nil || !strings.Contains(err.Error(), "want off, messages or all") {
			t.Errorf("%q: %q, %v", said, env, err)
		}
	}
	t.Setenv(names.EnvMPIProgress, "all")
	if _, err := wishes(Auto, t.TempDir()); err == nil || !strings.Contains(err.Error(), stepsFile) {
		t.Errorf("without the library: %v", err)
	}
}

// Libraries of several wishes, and the job's own, are all loaded.
func TestWishesTogether(t *testing.T) {
	dir := libraries(t, stepsFile, allocFile)
	t.Setenv(names.EnvMPIProgress, "all")
	t.Setenv(names.EnvMPIArena, "on")
	t.Setenv("LD_PRELOAD", "/lib/libother.so")
	want := "LD_PRELOAD=" + filepath.Join(dir, allocFile) + ":" + filepath.Join(dir, stepsFile) + ":/lib/libother.so"
	if env, err := wishes(MPICH, dir); err != nil || env[len(env)-1] != want || !slices.Contains(env, names.EnvMPIArena+"=65536") {
		t.Errorf("%q, %v, want %q", env, err, want)
	}
}
