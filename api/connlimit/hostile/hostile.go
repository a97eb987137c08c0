// Package hostile opens thousands of connections for tests of servers. It owns nothing
// outside of a test.
package hostile

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Conns is the list of connections of one test.
type Conns []*net.TCPConn

// Gather opens count connections to an address and calls each for every one. Errors of
// each are ignored: the server may have closed the connection. The connections are
// closed at the end of the test.
func Gather(t testing.TB, at string, count int, each func(i int, c net.Conn) error) (list Conns) {
	t.Helper()
	for i := range count {
		c, err := net.Dial("tcp", at)
		if errors.Is(err, unix.ECONNRESET) {
			continue // refused at once
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // it may be closed already
		_ = each(i, c)
		list = append(list, c.(*net.TCPConn))
	}
	return list
}

// Says returns a client that sends some bytes and then waits.
func Says(text string) func(int, net.Conn) error {
	return func(_ int, c net.Conn) error {
		_, err := c.Write([]byte(text))
		return err
	}
}

// Open counts the connections that the server has not closed. It reads the data that
// has arrived.
func (list Conns) Open(t testing.TB) (n int) {
	t.Helper()
	for _, c := range list {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			for b := make([]byte, 64<<10); ; {
				got, err := unix.Read(int(fd), b)
				if errors.Is(err, unix.EAGAIN) {
					n++
				}
				if err != nil || got == 0 {
					return
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Close closes all connections.
func (list Conns) Close() {
	for _, c := range list {
		_ = c.Close() // it may be closed already
	}
}
