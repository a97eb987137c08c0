package grant

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lingering returns a TCP connection with unsent bytes, whose last close waits for 20 s.
func lingering(t *testing.T) *os.File {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err == nil { // until the peer, which does not read, has room for no more
		_, err = c.Write(make([]byte, 1<<20))
	}
	if err := unix.SetsockoptLinger(int(f.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 20}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDrop checks that a descriptor whose close waits is closed soon.
func TestDrop(t *testing.T) {
	f := lingering(t)
	begun := time.Now()
	_ = Drop(f) // an interrupted close has closed
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("it is not closed: %v", err)
	}
}

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
