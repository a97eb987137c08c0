package ether

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// side is one sidecar's link with its memory.
type side struct {
	l    *Link
	m    *linktest.Memory
	peer link.Peer
}

// begun is the zero of clock.
var begun = time.Now()

// clock returns a monotonic time, as the sidecar does: without a system call.
func clock() int64 { return int64(time.Since(begun)) + 1 }

// config returns the configuration of pod self of two on this machine.
func config(t testing.TB, self link.Peer, encrypt bool) Config {
	t.Helper()
	sockets, err := tcp.New(nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Self: self, Peers: 2, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Addresses: []string{"127.0.0.1:1", "127.0.0.1:2"}, Encrypt: encrypt,
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr(host)}, nil
		},
		Stream: sockets, Log: slog.New(slog.DiscardHandler), Clock: clock, Silence: 10e9,
	}
}

// sides makes two links, whose sides have the numbers 0 and 1.
func sides(t testing.TB, encrypt bool, change func(*Config)) (a, b *side) {
	t.Helper()
	made := [2]*side{}
	for i := range made {
		s := &side{m: linktest.NewMemory(), peer: link.Peer(1 - i)}
		cfg := config(t, link.Peer(i), encrypt)
		change(&cfg)
		var err error
		if s.l, err = New(cfg, nil); err != nil {
			t.Fatal(err)
		}
		s.l.SetMemory(s.m)
		made[i] = s
	}
	return made[0], made[1]
}

// join connects a and b, the pods 0 and 1, by packets and by the sockets x and y.
func join(t testing.TB, a, b *side, x, y int) {
	t.Helper()
	joinPeers(t, a, b, 0, 1, x, y)
}

// joinPeers connects a and b, which are the pods i and j.
func joinPeers(t testing.TB, a, b *side, i, j link.Peer, x, y int) {
	t.Helper()
	e, f, err := connectPeers(a, b, i, j)
	// A busy machine may run nothing of this for the second of the probes.
	for range 20 {
		if !errors.Is(err, errNoUDP) && !errors.Is(err, errNoRaw) {
			break
		}
		_, _ = e.Close(), f.Close() // never fail
		e, f, err = connectPeers(a, b, i, j)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := a.l.Join(j, x, e); err != nil {
		t.Fatal(err)
	}
	if err := b.l.Join(i, y, f); err != nil {
		t.Fatal(err)
	}
}

// connectPeers makes Endpoints of a and b, which are the pods i and j, and connects them.
func connectPeers(a, b *side, i, j link.Peer) (e, f *Endpoint, err error) {
	e, f = a.l.Prepare(j), b.l.Prepare(i)
	over := make(chan error, 2)
	go func() { over <- e.Connect(f.Offer()) }()
	go func() { over <- f.Connect(e.Offer()) }()
	sink := linktest.NewSink(a.m)
	for left := 2; left > 0; {
		select {
		case one := <-over:
			left--
			err = errors.Join(err, one)
		default:
			a.l.Poll(sink)
			b.l.Poll(sink)
			time.Sleep(10 * time.Microsecond) // the goroutines need a processor
		}
	}
	return e, f, err
}

func TestLink(t *testing.T) {
	for name, encrypt := range map[string]bool{"plain": false, "encrypted": true} {
		t.Run(name, func(t *testing.T) { linktest.Run(t, pairs(encrypt, nil)) })
	}
}

// TestPull runs the suite over links that read large messages by packets.
func TestPull(t *testing.T) {
	pull := func(c *Config) { c.Pull = true }
	t.Run("good network", func(t *testing.T) { linktest.Run(t, pairsOf(false, pull, nil)) })
	t.Run("bad network", func(t *testing.T) { linktest.Run(t, pairsOf(true, pull, worsen)) })
}

// pairs returns the harness of links over UDP. If bad is not nil, it makes the network of a
// side worse.
func pairs(encrypt bool, bad func(testing.TB, *Link)) linktest.Harness {
	return pairsOf(encrypt, func(*Config) {}, bad)
}

func pairsOf(encrypt bool, change func(*Config), bad func(testing.TB, *Link)) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		open := descriptors(t)
		a, b := sides(t, encrypt, change)
		t.Cleanup(func() {
			for _, s := range []*side{a, b} {
				if err := s.l.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := descriptors(t); n != open {
				t.Errorf("%d descriptors are open, %d were before", n, open)
			}
		})
		for _, s := range []*side{a, b} {
			if bad != nil {
				bad(t, s.l)
			}
		}
		connect := func(t *testing.T) {
			x, y := loopback(t)
			join(t, a, b, x, y)
		}
		connect(t)
		return &linktest.Pair{
			A:    linktest.Side{Link: a.l, Memory: a.m, Peer: 1},
			B:    linktest.Side{Link: b.l, Memory: b.m, Peer: 0},
			Pass: func() {}, Join: connect,
			Break: func(*testing.T) { a.l.Break(1) },
			Lossy: bad != nil,
		}
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// loopback returns a TCP connection of this machine with itself, as descriptors.
func loopback(t testing.TB) (x, y int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return duplicate(t, dialled), duplicate(t, accepted)
}

// duplicate returns a duplicate of a connection's socket, and closes the connection.
func duplicate(t testing.TB, c net.Conn) int {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return fd
}
