// Package hostile is what tests of servers open thousands of connections with.
package hostile

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Crowd are connections of one test.
type Crowd []*net.TCPConn

// Gather opens so many connections to an address and does something with each, whose
// error does not count: the server may have closed it. They are closed when the test ends.
func Gather(t testing.TB, at string, count int, each func(i int, c net.Conn) error) (list Crowd) {
	t.Helper()
	for i := range count {
		c, err := net.Dial("tcp", at)
		if errors.Is(err, unix.ECONNRESET) {
			continue // refused at once
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // it may be over
		_ = each(i, c)
		list = append(list, c.(*net.TCPConn))
	}
	return list
}

// Says is what a client says that sends some bytes and waits.
func Says(text string) func(int, net.Conn) error {
	return func(_ int, c net.Conn) error {
		_, err := c.Write([]byte(text))
		return err
	}
}

// Open counts the connections that the server has not closed. It reads what has come.
func (list Crowd) Open(t testing.TB) (n int) {
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

// Close closes all of them.
func (list Crowd) Close() {
	for _, c := range list {
		_ = c.Close() // it may be over
	}
}
