package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
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
func newSide(t testing.TB, peers int) *side { t.Helper(); return newSideOver(t, peers, nil) }

// newSideOver makes a link that offloads large reads.
func newSideOver(t testing.TB, peers int, copies *copyeng.Copies) *side {
	t.Helper()
	s := &side{m: linktest.NewMemory()}
	sockets, err := tcp.New(nil, peers)
	if err != nil {
		t.Fatal(err)
	}
	if s.l, err = New(Config{Peers: peers, Stream: sockets, Log: slog.New(slog.DiscardHandler), Copies: copies}, nil); err != nil {
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
		if r%2 == 0 { // like memory of sessions; regions with odd numbers have pages that may be removed
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

// meet connects two endpoints.
func meet(t testing.TB, a, b *side) (x, y *Endpoint) {
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

// joinAs connects a and b: b is a's peer n, and a is b's peer m.
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

// TestLink runs the suite with the rings of small and of large jobs.
func TestLink(t *testing.T) {
	for _, peers := range []int{1, fewPeers + 1, somePeers + 1} {
		t.Run(fmt.Sprint(ringSize(peers)), func(t *testing.T) { linktest.Run(t, pairs(peers, 0)) })
	}
}

// TestOffloads runs the suite over links whose large reads are copied by threads.
func TestOffloads(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) { linktest.Run(t, pairs(1, threads)) })
	}
}

func pairs(peers, threads int) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		open := openFiles(t)
		var copies *copyeng.Copies
		if threads > 0 {
			copies = copyengtest.Copies(t, threads)
		}
		a, b := newSideOver(t, peers, copies), newSide(t, peers)
		t.Cleanup(func() {
			for _, s := range []*side{a, b} {
				if s == a {
					if err := copies.Close(); err != nil {
						t.Error(err)
					}
				}
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
				c.out.commit()
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

// framesOnly is a link without abilities.
type framesOnly struct{ link.Link }

func (framesOnly) Abilities() link.Abilities { return link.Abilities{} }

// TestElsewhere checks that a peer that is reached by the stream receives and sends
// frames, with the capabilities of the stream.
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
		join(t, a, b) // the stream replaces it
		attach(t)
		if c := a.l.PeerCaps(0); c.Read || c.Name != "tcp" {
			t.Errorf("the capabilities are %+v, want tcp's", c)
		}
		only := func(l *Link) link.Link { return framesOnly{l} }
		return &linktest.Pair{
			A: linktest.Side{Link: only(a.l), Memory: a.m}, B: linktest.Side{Link: only(b.l), Memory: b.m},
			Pass: func() {}, Join: attach, Break: func(*testing.T) { a.l.Break(0) },
		}
	})
}
