package node

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// settled waits until all descriptors of disposed are closed.
func settled(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); disposed.closing() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("descriptors are still being closed")
		}
	}
}

// lingering returns the last descriptor of a TCP connection whose other end reads
// nothing: closing it takes a minute, or until release is called.
func lingering(t *testing.T) (fd int, release func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // its connection exists already
	got := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other := <-got
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(s uintptr) { fd, err = unix.Dup(int(s)) }); err != nil || fd < 0 {
		t.Fatal(err)
	}
	_ = c.Close() // fd remains
	for b := make([]byte, 1<<16); ; {
		if _, err := unix.Write(fd, b); err != nil {
			break // the other end's window is full
		}
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 60}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return fd, func() {
		if err := other.(*net.TCPConn).SetLinger(0); err != nil {
			t.Error(err)
		}
		_ = other.Close() // a reset, which ends the wait
	}
}

// TestDescriptorThatLingers checks that neither the turn nor a handshake waits for the
// close of a descriptor that another process has sent: the close is still in flight when
// they continue.
func TestDescriptorThatLingers(t *testing.T) {
	for name, send := range map[string]func(f *hostile, fd int){
		"with a wake-up": func(f *hostile, fd int) { f.says(controlMessage(controlWake, 3, 0, 0), fd) },
		"with an end":    func(f *hostile, fd int) { f.says(controlMessage(controlGone, 3, 0, 0), fd) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newHostile(t)
			fd, release := lingering(t)
			send(f, fd)
			_ = unix.Close(fd) // the one in the socket is the last
			f.b.l.conns[0].wakes = wakesMax
			for range 3 {
				f.b.l.checkSockets = true
				f.b.l.Poll(f.s)
			}
			if disposed.closing() == 0 {
				t.Error("the turn has waited for the close")
			}
			release()
		})
	}
	t.Run("unread", func(t *testing.T) {
		f := newHostile(t)
		fd, release := lingering(t)
		f.says(controlMessage(controlWake, 3, 0, 0), fd)
		_ = unix.Close(fd) // as above
		f.b.l.Forget(link.Peer(0))
		if disposed.closing() == 0 {
			t.Error("the turn has waited for the close")
		}
		release()
	})
	t.Run("of an unauthenticated process", func(t *testing.T) {
		a, b := newSide(t, 2), newSide(t, 2)
		defer func() { _, _ = a.l.Close(), b.l.Close() }() // they have no connection
		x, err := a.l.Prepare(0)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.l.Prepare(0)
		if err != nil {
			t.Fatal(err)
		}
		if string(x.mine.name[:]) > string(y.mine.name[:]) {
			x, y = y, x
		}
		other, err := net.DialUnix("unixpacket", nil, y.mine.address())
		if err != nil {
			t.Fatal(err)
		}
		fd, release := lingering(t)
		if _, _, err := other.WriteMsgUnix([]byte("no secret at all"), unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd) // as above
		_ = other.Close()
		over := make(chan error, 1)
		go func() { over <- x.Connect(y.Offer()) }()
		if err := y.Connect(x.Offer()); err != nil {
			t.Error(err)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
		if disposed.closing() == 0 {
			t.Error("the handshake has waited for the close")
		}
		release()
		_, _ = x.Close(), y.Close() // nothing has failed
	})
	t.Run("of a connection that was not accepted", func(t *testing.T) {
		a := newSide(t, 2)
		defer func() { _ = a.l.Close() }() // it has no connection
		x, err := a.l.Prepare(0)
		if err != nil {
			t.Fatal(err)
		}
		other, err := net.DialUnix("unixpacket", nil, x.mine.address())
		if err != nil {
			t.Fatal(err)
		}
		fd, release := lingering(t)
		if _, _, err := other.WriteMsgUnix([]byte("x"), unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd) // as above
		_ = other.Close()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if disposed.closing() == 0 {
			t.Error("the turn has waited for the close of the listener")
		}
		release()
	})
}
