package tcp_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// These benchmarks measure an eager send from an arena, with the links of both sides and
// the kernel: copied by the core first, as up to core.Limits.CopyBytes, or written from
// its memory, with and without the frame that acknowledges it. docs/reuse.md has the
// results.

const (
	coldArena = link.Region(4)
	warmPool  = link.Region(1)
	poolBytes = 1 << 20 // memory of the core's copies, used in turn
)

// arenaMiB is the size of an arena that is much larger than the processor's caches, as if a
// rank had computed between its sends.
var arenaMiB = flag.Int("tcp.arena", 512, "BenchmarkGather sends from so many MiB")

// twoSides is the memory and the links of a sidecar that sends, and of one that receives.
type twoSides struct {
	b              *testing.B
	from, to       *tcp.Link
	arena, pool    []byte
	dst            []byte
	received, acks int
	frame, ack     link.Frame
}

func (x *twoSides) Bytes(r link.Ref) []byte {
	if r.Region == coldArena {
		return x.arena[r.Off : r.Off+r.Len]
	}
	return x.pool[r.Off : r.Off+r.Len]
}

// receiver and sender are the links' sinks.
type (
	receiver struct{ *twoSides }
	sender   struct{ *twoSides }
)

func (x receiver) Deliver(_ link.Peer, h *wire.Header, payload []byte) error {
	copy(x.dst, payload)
	x.received++
	return nil
}

func (x receiver) Place(_ link.Peer, h *wire.Header) ([]byte, error) { return x.dst[:h.Length], nil }
func (x receiver) Placed(link.Peer) error                            { x.received++; return nil }

func (x sender) Deliver(link.Peer, *wire.Header, []byte) error { x.acks++; return nil }
func (x sender) Place(link.Peer, *wire.Header) ([]byte, error) { return nil, link.ErrProtocol }
func (x sender) Placed(link.Peer) error                        { return link.ErrProtocol }
func (x *twoSides) Done(link.Peer, uint64, error)              {}
func (x *twoSides) Written(link.Peer, uint64)                  {}
func (x *twoSides) Delivered(link.Peer, uint64)                {}
func (x *twoSides) Down(_ link.Peer, err error)                { x.b.Error(err) }

// newArena returns memory whose pages are allocated.
func newArena(b *testing.B) []byte {
	b.Helper()
	arena, err := unix.Mmap(-1, 0, *arenaMiB<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Munmap(arena); err != nil {
			b.Error(err)
		}
	})
	return arena
}

func newTwoSides(b *testing.B, arena []byte) *twoSides {
	b.Helper()
	var err error
	x := &twoSides{b: b, arena: arena, pool: make([]byte, poolBytes), dst: make([]byte, 8<<10)}
	if x.from, err = tcp.New(x, 1); err != nil {
		b.Fatal(err)
	}
	if x.to, err = tcp.New(x, 1); err != nil {
		b.Fatal(err)
	}
	here, there := loopback(b)
	attach(b, x.from, here)
	attach(b, x.to, there)
	b.Cleanup(func() {
		for _, l := range []*tcp.Link{x.from, x.to} {
			if err := l.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	return x
}

// send sends n bytes of the arena, and waits until they have arrived, or are
// acknowledged.
func (x *twoSides) send(i, n int, copied, acked bool) {
	ref := link.Ref{Region: coldArena, Off: uint64(i) * (68 << 10) % uint64(len(x.arena)-64<<10), Len: uint64(n)}
	if copied {
		pool := link.Ref{Region: warmPool, Off: uint64(i) * uint64(n) % (poolBytes - 64<<10), Len: uint64(n)}
		copy(x.Bytes(pool), x.Bytes(ref))
		ref = pool
	}
	x.frame.Payload = ref
	x.frame.Head = wire.Header{Type: wire.Eager, Seq: uint64(i + 1), A: uint64(n), Length: uint32(n)}
	for received, posted := x.received, false; x.received == received; {
		if !posted {
			posted = x.from.Post(0, []*link.Frame{&x.frame}) == 1
		}
		x.from.Poll(sender{x})
		x.to.Poll(receiver{x})
	}
	if !acked {
		return
	}
	x.ack.Head = wire.Header{Type: wire.Ack, Ack: uint64(i + 1)}
	x.to.Post(0, []*link.Frame{&x.ack})
	for acks := x.acks; x.acks == acks; {
		x.from.Poll(sender{x})
	}
}

// BenchmarkGather measures the three ways in turn, a message each, so that other load of
// the machine affects all of them; each has a connection of its own, since the kernel's
// acknowledgements for one way differ from those for another.
func BenchmarkGather(b *testing.B) {
	for _, n := range []int{512, 1600, 4 << 10, 8 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			arena := newArena(b)
			ways := []struct {
				name          string
				copied, acked bool
				durations     []float64
				x             *twoSides
			}{{name: "copied-ns", copied: true}, {name: "gathered-ns"}, {name: "gathered-told-ns", acked: true}}
			for w := range ways {
				ways[w].x = newTwoSides(b, arena)
			}
			i := 0
			for b.Loop() {
				for w := range ways {
					begin := time.Now()
					ways[w].x.send(i, n, ways[w].copied, ways[w].acked)
					ways[w].durations = append(ways[w].durations, float64(time.Since(begin).Nanoseconds()))
					i++
				}
			}
			for _, w := range ways {
				slices.Sort(w.durations)
				b.ReportMetric(w.durations[len(w.durations)/2], w.name)
			}
		})
	}
}
