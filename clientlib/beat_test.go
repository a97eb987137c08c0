package outrigger

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/names"
	"github.com/outrigger-hpc/outrigger/api/shm"
)

// quiet returns the path and the listener of a sidecar that does not answer.
func quiet(t *testing.T) (path string, l *net.UnixListener) {
	t.Helper()
	was := beatEvery
	beatEvery = time.Millisecond
	t.Cleanup(func() { beatEvery = was })
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	return path, l
}

func putBeat(t *testing.T, path string, n uint64) {
	t.Helper()
	if err := os.WriteFile(path+names.BeatSuffix, binary.LittleEndian.AppendUint64(nil, n), 0o600); err != nil {
		t.Error(err)
	}
}

// TestOpenAtAStoppedSidecar checks that Open fails if the sidecar listens, does not answer, and its
// beat has ended.
func TestOpenAtAStoppedSidecar(t *testing.T) {
	path, l := quiet(t)
	defer func() { _ = l.Close() }() // no connection is left
	putBeat(t, path, 7)
	if _, err := Open(t.Context(), Config{Socket: path}); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "it is stopped") {
		t.Errorf("%v, want an error that says that the sidecar at %s is stopped", err, path)
	}
}

// TestOpenWaitsWithoutABeat checks that Open waits for a sidecar of an earlier release, which has no
// beat.
func TestOpenWaitsWithoutABeat(t *testing.T) {
	path, l := quiet(t)
	defer func() { _ = l.Close() }() // no connection is left
	opened := make(chan error, 1)
	go func() {
		_, err := Open(t.Context(), Config{Socket: path})
		opened <- err
	}()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	time.Sleep(4 * shm.BeatPolls * beatEvery) // a longer time changes nothing
	w := shm.Welcome{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Text: "this is the answer"}
	if _, err := conn.Write(w.Encode()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "this is the answer") {
		t.Errorf("%v, want the answer", err)
	}
}

// TestBeatCountsReadings checks the bound, that a change begins it again, and that a file of another
// kind is no beat.
func TestBeatCountsReadings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	putBeat(t, path, 1)
	b := &beat{path: path}
	for round := range uint64(2) {
		putBeat(t, path, round+2)
		for i := range shm.BeatPolls { // the first reading is of a new number
			if err := b.read(); err != nil {
				t.Fatalf("round %d, reading %d: %v", round, i, err)
			}
		}
	}
	if err := b.read(); err == nil {
		t.Errorf("no error after %d readings of one number", shm.BeatPolls)
	}
	name := path + names.BeatSuffix
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if b.number() != nil {
		t.Error("a pipe has a number")
	}
}
