package tcp

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tcpPair returns the descriptors of a TCP connection over the loopback device.
func tcpPair(t *testing.T) (a, b int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	descriptor := func(c net.Conn) int {
		f, err := c.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = f.Close(), c.Close() })
		fd := int(f.Fd())
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	return descriptor(out), descriptor(in)
}

// TestIdleAnswersNothing checks that a connection on which nothing was sent for long shows nothing.
func TestIdleAnswersNothing(t *testing.T) {
	t.Parallel()
	a, _ := tcpPair(t)
	for end := time.Now().Add(20 * time.Second); Acknowledged(a); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an idle connection answers after 20 s")
		}
	}
	if _, err := unix.Write(a, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if !Acknowledged(a) {
		t.Error("a connection on which a byte was sent does not answer")
	}
}

// TestAcknowledged checks that a machine answers while its process reads nothing, with a full
// receive buffer, too, and that it does not if its kernel receives nothing.
func TestAcknowledged(t *testing.T) {
	a, _ := tcpPair(t)
	for _, err := unix.Write(a, make([]byte, 1<<20)); err == nil; _, err = unix.Write(a, make([]byte, 1<<20)) {
		continue // until the buffers are full
	}
	for range 100 {
		if !Acknowledged(a) {
			t.Fatal("a machine whose process reads nothing does not answer")
		}
		time.Sleep(10 * time.Millisecond)
	}

	lost, b := tcpPair(t)
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}} // of each packet 0 bytes
	if err := unix.SetsockoptSockFprog(b, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); Acknowledged(lost); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a machine that receives nothing answers after 20 s")
		}
		if _, err := unix.Write(lost, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if Acknowledged(pair[0]) || Acknowledged(-1) {
		t.Error("a socket that is not TCP answers")
	}
	_, _ = unix.Close(pair[0]), unix.Close(pair[1])
}
