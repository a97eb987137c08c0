//go:build mpi

package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// openFast runs clientlib/c/test/open_timeout.c, whose clock runs 30 times as fast, and returns the error
// of its outrigger_open and the time that it took.
func openFast(t *testing.T, socket string) (string, time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), at(t, "c/open_timeout"))
	cmd.Env = append(os.Environ(), "OUTRIGGER_SOCKET="+socket, "OUTRIGGER_RANK=0")
	out, err := cmd.CombinedOutput()
	var ms int64
	if _, scanErr := fmt.Sscan(string(out), &ms); err != nil || scanErr != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out), time.Duration(ms) * time.Millisecond
}

// TestCOpenWaitsForASidecarThatStarts checks that the C client times out after 30 s if no sidecar
// listens, or a stopped one does, and waits without a limit for one that listens and does not answer yet.
func TestCOpenWaitsForASidecarThatStarts(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if text, after := openFast(t, socket); !strings.Contains(text, "no sidecar at "+socket) || after < 900*time.Millisecond {
		t.Errorf("without a sidecar, after %v: %s", after, text)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	// A sidecar whose beat does not go on is stopped; one without a beat is of an earlier release.
	beat := socket + names.BeatSuffix
	if err := os.WriteFile(beat, make([]byte, shm.BeatBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, after := openFast(t, socket); !strings.Contains(text, "the sidecar at "+socket) || !strings.Contains(text, "it is stopped") || after < 900*time.Millisecond {
		t.Errorf("of a stopped sidecar, after %v: %s", after, text)
	}
	if err := os.Remove(beat); err != nil {
		t.Fatal(err)
	}
	const starts = 3 * time.Second // 90 s by its clock
	time.AfterFunc(starts, func() { _ = unix.Close(fd) })
	if text, after := openFast(t, socket); after < starts-100*time.Millisecond {
		t.Errorf("of a sidecar that starts, after %v: %s", after, text)
	}
}
