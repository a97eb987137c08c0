package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// side is one sidecar's link with its memory.
type side struct {
	l *Link
	m *linktest.Memory
}

// newSide makes a link whose memory can be shared.
func newSide(t testing.TB, peers int) *side {
	t.Helper()
	s := &side{m: linktest.NewMemory()}
	sockets, err := tcp.New(nil, peers)
	if err != nil {
		t.Fatal(err)
	}
	if s.l, err = New(Config{Peers: peers, Stream: sockets, Log: slog.New(slog.DiscardHandler)}, nil); err != nil {
		t.Fatal(err)
	}
	s.l.SetMemory(s.m)
	s.m.Make = func(r link.Region, n int) []byte {
		fd, mem, err := segment.CreateToSeal("linktest", n, n)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		t.Cleanup(func() {
			if err := segment.Unmap(mem); err != nil {
				t.Error(err)
			}
		})
		if r%2 == 0 { // as memory of sessions is; the other has pages that may be taken away
			if err := segment.Seal(fd); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.l.ShareRegion(r, fd, 0, uint64(n)); err != nil {
			t.Fatal(err)
		}
		return mem
	}
	return s
}

// meet connects two ends.
func meet(t testing.TB, a, b *side) (x, y *End) {
	t.Helper()
	x, err := a.l.Prepare(0)
	if err != nil {
		t.Fatal(err)
	}
	if y, err = b.l.Prepare(0); err != nil {
		t.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- x.Connect(y.Offer()) }()
	if err := y.Connect(x.Offer()); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	return x, y
}

func socketPair(t testing.TB) (x, y int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

func join(t testing.TB, a, b *side) { t.Helper(); joinAs(t, a, 0, b, 0) }

// joinAs connects a with its peer n, which is b, whose peer m is a.
func joinAs(t testing.TB, a *side, n link.Peer, b *side, m link.Peer) {
	t.Helper()
	x, y := meet(t, a, b)
	p, q := socketPair(t)
	if err := a.l.Join(n, p, x); err != nil {
		t.Fatal(err)
	}
	if err := b.l.Join(m, q, y); err != nil {
		t.Fatal(err)
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	settled(t)
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestLink with the rings of small and of large jobs.
func TestLink(t *testing.T) {
	for _, peers := range []int{1, fewPeers + 1, somePeers + 1} {
		t.Run(fmt.Sprint(ringSize(peers)), func(t *testing.T) { linktest.Run(t, pairs(peers)) })
	}
}

func pairs(peers int) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		open := openFiles(t)
		a, b := newSide(t, peers), newSide(t, peers)
		t.Cleanup(func() {
			for _, s := range []*side{a, b} {
				if err := s.l.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := openFiles(t); n != open {
				t.Errorf("%d descriptors are open, %d were before", n, open)
			}
		})
		join(t, a, b)
		return &linktest.Pair{
			A:    linktest.Side{Link: a.l, Memory: a.m},
			B:    linktest.Side{Link: b.l, Memory: b.m},
			Pass: func() {}, Join: func(t *testing.T) { join(t, a, b) },
			Break: func(*testing.T) { a.l.Break(0) },
			Inject: func(t *testing.T, raw []byte) {
				x, y := meet(t, a, b)
				p, q := socketPair(t)
				if err := b.l.Join(0, q, y); err != nil {
					t.Fatal(err)
				}
				c := &conn{}
				x.handOver(c)
				c.out.put(raw)
				c.out.tell()
				for _, fd := range []int{p, c.local} {
					if err := unix.Close(fd); err != nil {
						t.Fatal(err)
					}
				}
				for _, mem := range [][]byte{c.seg, c.board} {
					if err := segment.Unmap(mem); err != nil {
						t.Fatal(err)
					}
				}
			},
		}
	}
}

// TestElsewhere: a peer that is reached by the stream gets and sends frames, and what the
// framesOnly is a link of which no ability is known.
type framesOnly struct{ link.Link }

func (framesOnly) Abilities() link.Abilities { return link.Abilities{} }

// link says of it is the stream's.
func TestElsewhere(t *testing.T) {
	linktest.Run(t, func(t *testing.T) *linktest.Pair {
		a, b := newSide(t, 2), newSide(t, 2)
		t.Cleanup(func() {
			if err := errors.Join(a.l.Close(), b.l.Close()); err != nil {
				t.Error(err)
			}
		})
		attach := func(t *testing.T) {
			p, q := socketPair(t)
			if err := errors.Join(a.l.Attach(0, p), b.l.Attach(0, q)); err != nil {
				t.Fatal(err)
			}
		}
		join(t, a, b) // which ends by the other
		attach(t)
		if c := a.l.PeerCaps(0); c.Read || c.Name != "tcp" {
			t.Errorf("it can do %+v, it says", c)
		}
		only := func(l *Link) link.Link { return framesOnly{l} }
		return &linktest.Pair{
			A: linktest.Side{Link: only(a.l), Memory: a.m}, B: linktest.Side{Link: only(b.l), Memory: b.m},
			Pass: func() {}, Join: attach, Break: func(*testing.T) { a.l.Break(0) },
		}
	})
}
