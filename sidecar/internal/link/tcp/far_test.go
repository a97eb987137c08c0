package tcp_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// apart returns a TCP connection between two addresses, with the segments of Ethernet with an MTU
// of 9000.
func apart(t *testing.T) (x, y int) {
	t.Helper()
	segments := func(_, _ string, c syscall.RawConn) (err error) {
		err2 := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 8948) })
		return errors.Join(err, err2)
	}
	return connection(t, &net.ListenConfig{Control: segments}, &net.Dialer{Control: segments, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}})
}

func options(t *testing.T, fd int) (receive, send int) {
	t.Helper()
	receive, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	send, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return receive, send
}

// TestBuffersOfLargeJobs checks that in a job of many pods the kernel holds no more for each end
// of a connection whose ends do not read than api/memory counts.
func TestBuffersOfLargeJobs(t *testing.T) {
	for peers, small := range map[int]bool{memory.ManyConns: false, memory.ManyConns + 1: true} {
		l, err := tcp.New(linktest.NewMemory(), peers)
		if err != nil {
			t.Fatal(err)
		}
		x, y := apart(t)
		if err := errors.Join(l.Attach(0, x), l.Attach(1, y)); err != nil {
			t.Fatal(err)
		}
		most := 0
		b := make([]byte, 64<<10)
		for range 20 {
			for _, fd := range []int{x, y} {
				for err = nil; err == nil; {
					_, err = unix.Write(fd, b)
				}
			}
			for _, fd := range []int{x, y} {
				var m meminfo
				if err := m.read(fd); err != nil {
					t.Fatal(err)
				}
				most = max(most, int(m.received+m.queued+m.reserved))
			}
			time.Sleep(10 * time.Millisecond) // the kernel moves data
		}
		t.Logf("%d peers: at most %d bytes for an end", peers, most)
		if bound := memory.ConnBuffer * 11 / 2; (most <= bound) != small {
			t.Errorf("%d peers: the kernel holds %d bytes for an end; want at most %d only in a large job", peers, most, bound)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBusyConnectionsOfLargeJobs checks that connections that move much get large buffers, no more
// of them than there are places, and that a place of a silent connection is taken for a busy one.
func TestBusyConnectionsOfLargeJobs(t *testing.T) {
	m := linktest.NewMemory()
	l, err := tcp.New(m, memory.ManyConns+1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := &link.Frame{Head: wire.Header{Type: wire.Heartbeat, Length: 64 << 10}, Payload: m.Fill(64<<10, 1)}
	sink := linktest.NewSink(m)
	const busy = memory.WideConns + 1
	var fds []int
	for peer := range link.Peer(busy) {
		x, y := apart(t)
		if err := l.Attach(peer, x); err != nil {
			t.Fatal(err)
		}
		fds = append(fds, x)
		if err := unix.SetNonblock(y, false); err != nil {
			t.Fatal(err)
		}
		end := os.NewFile(uintptr(y), "peer")
		defer end.Close()
		go func() { _, _ = io.Copy(io.Discard, end) }() // until the link closes its end
	}
	move := func(peer link.Peer) {
		t.Helper()
		for sent, start := 0, l.Stats().BytesOut; sent < 20 || l.Stats().BytesOut < start+20<<16; {
			if sent < 20 {
				sent += l.Post(peer, []*link.Frame{f})
			}
			l.Poll(sink)
		}
	}
	wide := func() (n int) {
		for _, fd := range fds {
			if receive, send := options(t, fd); receive > 2*memory.ConnBuffer && send > 2*memory.ConnBuffer {
				n++
			}
		}
		return n
	}
	if n := wide(); n != 0 {
		t.Fatalf("%d connections have large buffers before they carry anything", n)
	}
	for peer := range link.Peer(memory.WideConns) {
		if move(peer); wide() != int(peer)+1 {
			t.Fatalf("%d connections have large buffers after %d have moved much", wide(), peer+1)
		}
	}
	for start := time.Now(); time.Since(start) < 10*time.Millisecond; { // all become silent
		l.Poll(sink)
	}
	for range 3000 {
		l.Poll(sink)
	}
	move(busy - 1)
	if receive, send := options(t, fds[busy-1]); wide() != memory.WideConns || receive <= 2*memory.ConnBuffer || send <= 2*memory.ConnBuffer {
		t.Errorf("%d connections have large buffers, the busy one has %d and %d bytes", wide(), receive, send)
	}
}
