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
	dir := libraries(t, stepsFile)
	for said, want := range map[string][]string{
		"": nil, "off": nil, "messages": nil, "all": {"LD_PRELOAD=" + filepath.Join(dir, stepsFile)},
	} {
		t.Setenv(names.EnvMPIProgress, said)
		if env, err := wishes(dir); err != nil || !slices.Equal(env, want) {
			t.Errorf("%q: %q, %v, want %q", said, env, err, want)
		}
	}
	for _, said := range []string{"on", "1", "ALL"} {
		t.Setenv(names.EnvMPIProgress, said)
		if env, err := wishes(dir); err == nil || !strings.Contains(err.Error(), "want off, messages or all") {
			t.Errorf("%q: %q, %v", said, env, err)
		}
	}
	t.Setenv(names.EnvMPIProgress, "all")
	if _, err := wishes(t.TempDir()); err == nil || !strings.Contains(err.Error(), stepsFile) {
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
	if env, err := wishes(dir); err != nil || env[len(env)-1] != want || !slices.Contains(env, names.EnvMPIArena+"=65536") {
		t.Errorf("%q, %v, want %q", env, err, want)
	}
}
