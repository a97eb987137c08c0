package mpi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/names"
)

// extra returns the environment of a job with these variables and libraries of dir, and
// with what every process of an MPI job has.
func extra(dir string, env []string, files ...string) []string {
	text := "LD_PRELOAD=" + filepath.Join(dir, checkFile)
	for _, f := range files {
		text += ":" + filepath.Join(dir, f)
	}
	return slices.Concat([]string{names.EnvMPICheck + "=select"}, env, []string{text, "ASAN_OPTIONS=verify_asan_link_order=0"})
}

// libraries makes a directory with files of these names and the one that every job needs,
// and resets all options.
func libraries(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range append(files, checkFile) {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"LD_PRELOAD", "ASAN_OPTIONS", names.EnvMPIArena, names.EnvMPIProgress} {
		t.Setenv(name, "")
	}
	return dir
}

func TestProgressing(t *testing.T) {
	dir, nolocal := libraries(t, stepsFile), []string{"MPIR_CVAR_NOLOCAL=1"}
	for given, want := range map[string][]string{
		"": extra(dir, nil), "off": extra(dir, nil), "messages": extra(dir, nolocal), "all": extra(dir, nolocal, stepsFile),
	} {
		t.Setenv(names.EnvMPIProgress, given)
		if env, err := settings(MPICH, dir); err != nil || !slices.Equal(env, want) {
			t.Errorf("%q: %q, %v, want %q", given, env, err, want)
		}
	}
	for _, given := range []string{"on", "1", "ALL"} {
		t.Setenv(names.EnvMPIProgress, given)
		if env, err := settings(MPICH, dir); err == nil || !strings.Contains(err.Error(), "want off, messages or all") {
			t.Errorf("%q: %q, %v", given, env, err)
		}
	}
	empty := libraries(t)
	t.Setenv(names.EnvMPIProgress, "all")
	if _, err := settings(MPICH, empty); err == nil || !strings.Contains(err.Error(), stepsFile) {
		t.Errorf("without the library: %v", err)
	}
}

// TestSettingsTogether checks that libraries of several options, and the job's own, are all
// loaded.
func TestSettingsTogether(t *testing.T) {
	dir := libraries(t, stepsFile, allocFile)
	t.Setenv(names.EnvMPIProgress, "all")
	t.Setenv(names.EnvMPIArena, "on")
	t.Setenv("LD_PRELOAD", "/lib/libother.so")
	t.Setenv("ASAN_OPTIONS", "detect_leaks=0")
	want := extra(dir, []string{names.EnvMPIArena + "=65536", "MPIR_CVAR_NOLOCAL=1"}, allocFile, stepsFile)
	want[len(want)-2] += ":/lib/libother.so"
	want[len(want)-1] = "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0"
	if env, err := settings(MPICH, dir); err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v, want %q", env, err, want)
	}
}

// TestChecking checks that a program that does not show its MPI reports to the sidecar
// whether a process has loaded one.
func TestChecking(t *testing.T) {
	dir := libraries(t)
	for f, want := range map[Family]string{unknown: "loaded", OpenMPI: "select", MPICH: "select", Intel: "select"} {
		if env, err := settings(f, dir); err != nil || !slices.Contains(env, names.EnvMPICheck+"="+want) {
			t.Errorf("%s: %q, %v, want %s", f, env, err, want)
		}
	}
}
