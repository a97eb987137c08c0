package verbs

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// TestFabric runs the suite over devices that are made of memory.
func TestFabric(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		linktest.Run(t, func(t *testing.T) *linktest.Pair {
			f := newFabric()
			return pairOf(t, receives, func() nic {
				n, err := f.open("fake")
				if err != nil {
					t.Fatal(err)
				}
				return n
			})
		})
	})
}

// TestSilentFabric runs the suite with shared receives, over devices that do not report
// when a queue pair takes no more of them.
func TestSilentFabric(t *testing.T) {
	linktest.Run(t, func(t *testing.T) *linktest.Pair {
		f := newFabric()
		return pairOf(t, bootstrap.ReceivesShared, func() nic {
			n, err := f.open("fake")
			if err != nil {
				t.Fatal(err)
			}
			n.mute = true
			return n
		})
	})
}

// bothWays runs a test with receives of each connection, and with shared ones.
func bothWays(t *testing.T, test func(t *testing.T, receives string)) {
	for _, receives := range []string{bootstrap.ReceivesOwn, bootstrap.ReceivesShared} {
		t.Run(receives, func(t *testing.T) { test(t, receives) })
	}
}

func newTestLink(t *testing.T, receives string, m *linktest.Memory, n nic) *Link {
	t.Helper()
	s, err := tcp.New(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLink(Config{Peers: 1, Receives: receives, Stream: s, Log: slog.New(slog.DiscardHandler)}, m, n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pairOf returns two connected links, over devices that open makes.
func pairOf(t *testing.T, receives string, open func() nic) *linktest.Pair {
	t.Helper()
	before := descriptors(t)
	am, bm := linktest.NewMemory(), linktest.NewMemory()
	a, b := newTestLink(t, receives, am, open()), newTestLink(t, receives, bm, open())
	t.Cleanup(func() {
		for _, l := range []*Link{a, b} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors are open, %d were before", n, before)
		}
	})
	join(t, a, b)
	return &linktest.Pair{
		A: linktest.Side{Link: a, Memory: am, Peer: 0}, B: linktest.Side{Link: b, Memory: bm, Peer: 0},
		Pass: func() {}, Messages: true,
		Join:   func(t *testing.T) { join(t, a, b) },
		Break:  func(*testing.T) { a.Break(0) },
		Inject: func(t *testing.T, raw []byte) { inject(t, a, b, raw) },
	}
}

// descriptors returns the number of open descriptors, including those that the runtime's
// poller opens at its first use: a pipe causes that.
func descriptors(t *testing.T) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil || r.Close() != nil || w.Close() != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// ends returns two endpoints that are connected to each other.
func ends(t *testing.T, a, b *Link) (x, y *Endpoint) {
	t.Helper()
	x, err := a.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if y, err = b.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := x.Connect(y.Offer()); err != nil {
		t.Fatal(err)
	}
	if err := y.Connect(x.Offer()); err != nil {
		t.Fatal(err)
	}
	return x, y
}

func sockets(t *testing.T) [2]int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds
}

// join connects two links. As an engine does, it asks again while the end of the last
// connection takes its time, and tries again when that has taken too long: on a busy
// machine a device may be slow.
func join(t *testing.T, a, b *Link) {
	t.Helper()
	try := func(l *Link, fd int, e *Endpoint) error {
		for {
			if err := l.Join(0, fd, e); !errors.Is(err, link.ErrLater) {
				return err
			}
			l.Poll(l.streaming.Sink)
		}
	}
	for end := time.Now().Add(10 * time.Second); ; {
		x, y := ends(t, a, b)
		fds := sockets(t)
		err := try(a, fds[0], x)
		if err == nil {
			if err = try(b, fds[1], y); err == nil {
				return
			}
		} else {
			err = errors.Join(err, y.Close(), unix.Close(fds[1]))
		}
		if !errors.Is(err, errUnsettled) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// inject sends raw messages to b from a queue pair that belongs to no link, and then
// closes the socket.
func inject(t *testing.T, a, b *Link, raw []byte) {
	t.Helper()
	x, y := ends(t, a, b)
	fds := sockets(t)
	if err := b.Join(0, fds[1], y); err != nil {
		t.Fatal(err)
	}
	c := x.c
	for len(raw) > 0 {
		n := copy(a.stage.mem, raw[:min(len(raw), slotBytes)]) // any registered memory will do
		raw = raw[n:]
		if err := c.pair.post([]request{{op: opSend, addr: a.stage.at.addr, lkey: a.stage.at.lkey, length: uint32(n), imm: recvSlots, flags: flagSignal, id: idOf(c.tag, 0)}}); err != nil {
			t.Fatal(err)
		}
		// The completion says that it is sent: the memory is used again.
		for a.drain(nil); len(c.early) == 0; a.drain(nil) {
		}
		c.early = nil
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fds[0]); err != nil {
		t.Fatal(err)
	}
}

// TestCloseReportsAll checks that Close reports the resources that it could not release,
// whatever follows them.
func TestCloseReportsAll(t *testing.T) {
	f := newFabric()
	n, err := f.open("fake")
	if err != nil {
		t.Fatal(err)
	}
	l := newTestLink(t, bootstrap.ReceivesOwn, nil, n)
	l.SetMemory(make(plain, 4096))
	k, err := l.Register(link.Ref{Region: 1, Len: 8})
	if err != nil {
		t.Fatal(err)
	}
	delete(n.regions, uint32(k.Key))
	if err := l.Close(); err == nil {
		t.Error("Close does not report a registration that could not be ended")
	}
}

// TestStreamHasMemory checks that a peer that is reached by the stream gets messages out
// of the same memory, which is set after the link is made.
func TestStreamHasMemory(t *testing.T) {
	n, err := newFabric().open("fake")
	if err != nil {
		t.Fatal(err)
	}
	l := newTestLink(t, "", nil, n)
	defer func() { _ = l.Close() }()
	m := linktest.NewMemory()
	l.SetMemory(m)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	if err := l.Attach(0, fds[0]); err != nil {
		t.Fatal(err)
	}
	f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 8}, Payload: m.NewRegion(8)}
	if n := l.Post(0, []*link.Frame{f}); n != 1 {
		t.Errorf("%d frames were accepted", n)
	}
}
