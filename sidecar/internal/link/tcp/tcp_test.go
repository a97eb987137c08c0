package tcp_test

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

func TestSocketPair(t *testing.T) { linktest.Run(t, pairs(socketPair)) }

func TestLoopback(t *testing.T) { linktest.Run(t, pairs(loopback)) }

// pairs returns the harness of links whose connections connect makes.
func pairs(connect func(t testing.TB) (x, y int)) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		open := descriptors(t)
		am, bm := linktest.NewMemory(), linktest.NewMemory()
		a, b := newLink(t, am), newLink(t, bm)
		t.Cleanup(func() {
			for _, l := range []*tcp.Link{a, b} {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := descriptors(t); n != open {
				t.Errorf("%d descriptors are open, %d were before", n, open)
			}
		})
		join := func(t *testing.T) {
			x, y := connect(t)
			attach(t, a, x)
			attach(t, b, y)
		}
		join(t)
		return &linktest.Pair{
			A:    linktest.Side{Link: a, Memory: am, Peer: 0},
			B:    linktest.Side{Link: b, Memory: bm, Peer: 0},
			Pass: func() {}, Join: join,
			Break: func(*testing.T) { a.Break(0) },
			Inject: func(t *testing.T, raw []byte) {
				x, y := connect(t)
				attach(t, b, y)
				send(t, x, raw)
			},
		}
	}
}

func newLink(t *testing.T, m *linktest.Memory) *tcp.Link {
	t.Helper()
	l, err := tcp.New(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func attach(t testing.TB, l *tcp.Link, fd int) {
	t.Helper()
	if err := l.Attach(0, fd); err != nil {
		t.Fatal(err)
	}
}

// send writes all of raw to fd and closes it.
func send(t *testing.T, fd int, raw []byte) {
	t.Helper()
	for len(raw) > 0 {
		n, err := unix.Write(fd, raw)
		if err != nil {
			t.Fatal(err)
		}
		raw = raw[n:]
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func socketPair(t testing.TB) (x, y int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// loopback returns a TCP connection of this machine with itself, as descriptors.
func loopback(t testing.TB) (x, y int) {
	t.Helper()
	return connection(t, &net.ListenConfig{}, &net.Dialer{})
}

// connection returns a TCP connection to an address of this machine, as descriptors.
func connection(t testing.TB, l *net.ListenConfig, d *net.Dialer) (x, y int) {
	t.Helper()
	listener, err := l.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := d.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return own(t, dialled), own(t, accepted)
}

// own returns a duplicate of a connection's descriptor, and closes the connection.
func own(t testing.TB, c net.Conn) int {
	t.Helper()
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(n uintptr) { fd, dupErr = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) }); err != nil || dupErr != nil {
		t.Fatal(err, dupErr)
	}
	return fd
}
