package mpi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRankProcesses checks that ranks are found by their environment, which may contain any
// bytes.
func TestRankProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, env := range map[string]string{
		"10": "PATH=/bin\x00OUTRIGGER_SOCKET=/run/s\x00PMI_RANK=3\x00",
		"11": "OUTRIGGER_SOCKET=/run/s\x00PMIX_RANK=0\x00",
		"12": "OMPI_COMM_WORLD_RANK=1\x00OUTRIGGER_SOCKET=/run/s",
		"13": "OUTRIGGER_SOCKET=/run/s\x00PATH=/bin\x00",           // a daemon
		"14": "OUTRIGGER_SOCKET=/run/s2\x00PMI_RANK=3\x00",         // of another pod
		"15": "X=OUTRIGGER_SOCKET=/run/s\x00Y=a PMI_RANK=3\x00",    // values that look like it
		"16": "",                                                   // a kernel thread
		"17": strings.Repeat("\x00", 1<<16) + "PMI_RANK=1\xff\xfe", // not text
		"1x": "OUTRIGGER_SOCKET=/run/s\x00PMI_RANK=3\x00",
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, "environ"), []byte(env), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(proc, "18"), 0o700); err != nil { // it has ended
		t.Fatal(err)
	}
	pids := rankProcesses(proc, "/run/s")
	slices.Sort(pids)
	if want := []int{10, 11, 12}; !slices.Equal(pids, want) {
		t.Errorf("ranks are %v, want %v", pids, want)
	}
	if pids := rankProcesses(filepath.Join(proc, "none"), "/run/s"); len(pids) != 0 {
		t.Errorf("without /proc: %v", pids)
	}
}
