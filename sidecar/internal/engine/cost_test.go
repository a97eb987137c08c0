package engine

import (
	"io"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

// app is an application in this process that uses the rings directly.
type app struct {
	submit   *ring.Producer
	complete *ring.Consumer
	slab     []byte
	control  *segment.Control
	bell     int
}

// push publishes a descriptor, and rings if the engine asks for it.
func (a *app) push(tb testing.TB, d *shm.Descriptor) {
	tb.Helper()
	if ok, err := a.submit.Push(d); !ok || err != nil {
		tb.Fatal("not submitted", err)
	}
	if a.control.Sleeping() {
		if err := wake.Ring(a.bell); err != nil {
			tb.Fatal(err)
		}
	}
}

// pages returns zeroed memory that starts at a page boundary, as mapped memory does.
func pages(n int) []byte {
	b := make([]byte, n+4096)
	skip := -uintptr(unsafe.Pointer(&b[0])) & 4095
	return b[skip : int(skip)+n]
}

// closing closes an engine when its test ends.
func closing(tb testing.TB, e *Engine) {
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
}

// noDialer is the Dialer of jobs with one pod.
type noDialer struct{}

func (noDialer) Connect(link.Peer) {}
func (noDialer) Cancel(link.Peer)  {}

// pod makes an engine with that many ranks in one pod, and their applications.
func pod(tb testing.TB, ranks int) (*Engine, []*app) {
	tb.Helper()
	return podOf(tb, ranks, core.Config{PodOf: make([]int32, ranks), Pods: 1}, local.New(0, nil))
}

// podOf does what pod does, for a job with more pods. The engine has the first ranks.
func podOf(tb testing.TB, ranks int, cfg core.Config, remote link.Link) (*Engine, []*app) {
	tb.Helper()
	now := int64(1)
	return podWith(tb, ranks, Config{Core: cfg, Remote: remote}, func() int64 { now += 1000; return now })
}

// podWith does what podOf does, with a configuration that lacks what all pods have.
func podWith(tb testing.TB, ranks int, cfg Config, clock func() int64) (*Engine, []*app) {
	tb.Helper()
	loop := local.New(0, nil)
	loop.SetCopies(cfg.Copies)
	cfg.Local, cfg.Dialer, cfg.Log = loop, noDialer{}, slog.New(slog.NewTextHandler(io.Discard, nil))
	e, err := New(cfg, clock)
	if err != nil {
		tb.Fatal(err)
	}
	loop.SetMemory(e)
	apps := make([]*app, ranks)
	for r := range apps {
		apps[r] = attach(tb, e, uint32(r))
	}
	return e, apps
}

// attach attaches the application of a rank.
func attach(tb testing.TB, e *Engine, rank uint32) *app {
	tb.Helper()
	g := segment.DefaultGeometry
	c, err := segment.Format(pages(g.Bytes()), g, rank)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := session.New(c, pages(1<<20), rank)
	if err != nil {
		tb.Fatal(err)
	}
	a := &app{slab: c.Slab(), control: c}
	if a.bell, err = wake.NewDoorbell(); err == nil {
		s.SetDoorbell(a.bell)
		err = e.Attach(s)
	}
	if err != nil {
		tb.Fatal(err)
	}
	mem, n := c.SubmitRing()
	if a.submit, err = ring.NewProducer(mem, n); err == nil {
		mem, n = c.CompleteRing()
		a.complete, err = ring.NewConsumer(mem, n)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// batch sends n 8-byte messages from rank 0 to rank 1, whose receives are posted first, and
// takes their completions. It returns the time that the turns took, which is the engine's
// share.
func batch(tb testing.TB, e *Engine, apps []*app, n int) (turns time.Duration) {
	var d shm.Descriptor
	var payload [8]byte
	for i := range n {
		d = shm.Descriptor{Op: shm.OpRecv, Req: uint32(i), Class: shm.ClassInline, InlineLen: 8, Peer: 0, Tag: 7}
		apps[1].push(tb, &d)
		d = shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1, Tag: 7}
		payload[0] = byte(i)
		d.SetInline(payload[:])
		apps[0].push(tb, &d)
	}
	for got := 0; got < n; {
		begin := time.Now()
		e.Turn()
		turns += time.Since(begin)
		for apps[1].complete.Pop(&d) {
			if d.Op != shm.OpDone || d.Status != shm.StatusOK || d.Body[0] != byte(got) {
				tb.Fatalf("completion %d: op %d status %d byte %d", got, d.Op, d.Status, d.Body[0])
			}
			got++
		}
	}
	return turns
}

// BenchmarkMessage measures an 8-byte message from ring to ring: with the ring work of both
// applications, and the engine's share alone.
func BenchmarkMessage(b *testing.B) {
	e, apps := pod(b, 2)
	closing(b, e)
	batch(b, e, apps, 64)
	b.ReportAllocs()
	b.ResetTimer()
	var turns time.Duration
	for i := 0; i < b.N; i += 64 {
		turns += batch(b, e, apps, 64)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s-with-apps")
	b.ReportMetric(float64(b.N)/turns.Seconds()/1e6, "Mmsg/s-engine")
}

// BenchmarkPosted measures the same with other posted receives that do not match.
func BenchmarkPosted(b *testing.B) {
	for _, depth := range []int{10, 10_000} {
		b.Run("depth="+map[int]string{10: "10", 10_000: "10000"}[depth], func(b *testing.B) {
			e, apps := pod(b, 2)
			closing(b, e)
			for i := range depth {
				d := shm.Descriptor{Op: shm.OpRecv, Req: uint32(1000 + i), Class: shm.ClassInline, InlineLen: 8, Peer: 0, Tag: uint64(1000 + i)}
				if ok, err := apps[1].submit.Push(&d); !ok || err != nil {
					b.Fatal("receive not submitted", err)
				}
				e.Turn()
			}
			b.ResetTimer()
			for i := 0; i < b.N; i += 64 {
				batch(b, e, apps, 64)
			}
		})
	}
}
