package outrigger

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestOpenWaitsForASidecarThatStarts: the timeout of Open applies to a sidecar that does not
// listen. A sidecar that listens may take any time to answer.
func TestOpenWaitsForASidecarThatStarts(t *testing.T) {
	was := openTimeout
	openTimeout = time.Nanosecond
	defer func() { openTimeout = was }()
	path := filepath.Join(t.TempDir(), "s")
	if _, err := Open(t.Context(), Config{Socket: path}); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "no sidecar at "+path) {
		t.Errorf("without a sidecar: %v", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := conn.Read(make([]byte, shm.HelloBytes)); err != nil {
		t.Fatal(err)
	}
	// The client has sent its Hello, and openTimeout has passed long ago.
	w := shm.Welcome{ABI: shm.ABIVersion, Features: shm.FeaturesAll, Text: "this is the answer"}
	if _, err := conn.Write(w.Encode()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "this is the answer") {
		t.Errorf("a sidecar that answers late: %v", err)
	}
	// A sidecar that has ended does not listen, although its socket file exists.
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Socket: path}); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a socket on which no sidecar listens: %v", err)
	}
}
