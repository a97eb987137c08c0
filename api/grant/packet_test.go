package grant

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestReceivedIsNotPolled checks that the runtime does not poll a descriptor of another process.
func TestReceivedIsNotPolled(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close() // FileConn has duplicated it
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { _ = c.Close() })
	}
	r, w, err := os.Pipe() // non-blocking
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := Send(ends[0], &Message{Version: Version, Op: Memlock}, r); err != nil {
		t.Fatal(err)
	}
	_, f, err := Receive(ends[1])
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	defer f.Close()
	if err := f.SetDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("the runtime polls it: %v", err)
	}
}
