package sim

import (
	"encoding/binary"
	"flag"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/engine"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/local"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/obs"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/session"
)

var scale = flag.Int("sim.scale", 100, "pods of 64 ranks in the scale test")

const scaleRanks = 64 // of a pod

// memoryTarget bounds the memory of the sidecar of a job of 1,000 pods, without the memory
// that its ranks share with it.
const memoryTarget = 64 << 20

// member is an attached application that only submits.
type member struct {
	rank     uint32
	submit   *ring.Producer
	complete *ring.Consumer
	arena    []byte
	done     map[uint32]shm.Status
}

// largePod is a pod of a large job. Its engine is real; the other pods only acknowledge.
type largePod struct {
	t       *testing.T
	e       *engine.Engine
	net     *ackingLink
	members []*member
	ranks   int
	turns   []time.Duration
	now     int64 // virtual, so that nothing is late on a slow machine
}

// TestScale prints the memory of a sidecar of a large job and the times of its turns:
//
//	go test ./sidecar/internal/sim -run Scale -v -sim.scale=1000
func TestScale(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	base := heap()
	b := newLargePod(t, *scale)
	t.Logf("%d pods of %d ranks; times are processor time of turns, longest and median", *scale, scaleRanks)
	b.report("attach", func() { b.attach(scaleRanks) })
	b.report("8 bytes to 48 others each", func() { b.scatter(48) })
	b.report("200 messages each, same partners", func() {
		for range 5 {
			b.scatter(40)
		}
	})
	b.report("nothing to do", func() {
		for range 20_000 {
			b.turn()
		}
	})
	b.report("world duplicated by its ranks", func() { b.communicators(7, true) })
	b.report("world duplicated by its number", func() { b.communicators(8, false) })
	b.report("alltoallv of nothing", b.alltoallv)
	took := heap() - base
	runtime.KeepAlive(b)
	t.Logf("%-34s %8.1f MiB", "memory of the sidecar", float64(took)/(1<<20))
	b.scrape()
	if took > memoryTarget {
		t.Errorf("a sidecar of %d pods takes %d bytes, want at most %d", *scale, took, memoryTarget)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func newLargePod(t *testing.T, pods int) *largePod {
	t.Helper()
	cfg := largeJob(pods, scaleRanks)
	b := &largePod{t: t, net: newAckingLink(pods), ranks: len(cfg.PodOf), now: 1}
	loop := local.New(cfg.Self, nil)
	e, err := engine.New(engine.Config{
		Core: cfg, Local: loop, Remote: b.net, Dialer: b.net, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, func() int64 { return b.now })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	loop.SetMemory(e)
	b.e, b.net.engine = e, e
	return b
}

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // this clock always exists
	return time.Duration(t.Nano())
}

// shared returns memory like that of ranks: outside the heap, and allocated on first use.
func (b *largePod) shared(n int) []byte {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Munmap(mem) }) // at the end of the process otherwise
	return mem
}

func (b *largePod) attach(n int) {
	for i := range n {
		rank := uint32(b.ranks/scaleRanks/2*scaleRanks + i)
		g := segment.DefaultGeometry
		c, err := segment.Format(b.shared(g.Bytes()), g, rank)
		if err != nil {
			b.t.Fatal(err)
		}
		m := &member{rank: rank, arena: b.shared(shm.CollBlockBytes + 32*b.ranks + 4096), done: map[uint32]shm.Status{}}
		s, err := session.New(c, m.arena, rank)
		if err == nil {
			begin := threadTime()
			err = b.e.Attach(s)
			b.turns = append(b.turns, threadTime()-begin)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		mem, k := c.SubmitRing()
		if m.submit, err = ring.NewProducer(mem, k); err == nil {
			mem, k = c.CompleteRing()
			m.complete, err = ring.NewConsumer(mem, k)
		}
		if err != nil {
			b.t.Fatal(err)
		}
		b.members = append(b.members, m)
	}
}

func (b *largePod) turn() {
	b.now += 10_000
	if b.now/1e9 != (b.now-10_000)/1e9 {
		b.net.heartbeat()
	}
	begin := threadTime()
	b.e.Turn()
	b.turns = append(b.turns, threadTime()-begin)
	if f := b.e.Failure(); f != nil {
		b.t.Fatal(f)
	}
}

// settle runs turns until the request of each member has ended.
func (b *largePod) settle(req uint32) {
	for waiting := true; waiting; {
		b.turn()
		waiting = false
		for _, m := range b.members {
			var d shm.Descriptor
			for m.complete.Pop(&d) {
				m.done[d.Req] = d.Status
			}
			status, ok := m.done[req]
			waiting = waiting || !ok
			if status != shm.StatusOK {
				b.t.Fatalf("rank %d: request %d ended with status %d", m.rank, req, status)
			}
		}
	}
	for _, m := range b.members {
		delete(m.done, req)
	}
}

func (b *largePod) push(m *member, d shm.Descriptor) {
	if ok, err := m.submit.Push(&d); !ok || err != nil {
		b.t.Fatal("not submitted", err)
	}
}

// scatter makes every member send a silent message to n others.
func (b *largePod) scatter(n int) {
	for _, m := range b.members {
		draw := rand.New(rand.NewPCG(uint64(m.rank), 9))
		for range n {
			d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: draw.Uint32N(uint32(b.ranks))}
			d.SetInline(make([]byte, 8))
			b.push(m, d)
		}
	}
	for range 10 {
		b.turn()
	}
}

// communicators makes every member create a communicator of all ranks.
func (b *largePod) communicators(context uint32, list bool) {
	for _, m := range b.members {
		d := shm.Descriptor{Op: shm.OpComm, Req: 1, Context: context}
		if list {
			for i := range b.ranks {
				binary.LittleEndian.PutUint32(m.arena[4*i:], uint32(i))
			}
			d.Class = shm.ClassArena
			d.SetBody(0, uint64(4*b.ranks), 0, 0)
		}
		b.push(m, d)
	}
	b.settle(1)
}

// alltoallv runs an alltoallv of nothing on all ranks. Most of its longest turn is the check of the
// vectors of all ranks in one step, and not the garbage collection: without it a turn takes 980 to 1,060 us.
func (b *largePod) alltoallv() {
	for _, m := range b.members {
		c := shm.CollBlock{Kind: shm.CollAlltoallv, Type: shm.TypeUint64, Op: shm.ReduceSum, Vectors: 4, Elem: 8}
		clear(m.arena)
		c.Encode(m.arena)
		d := shm.Descriptor{Op: shm.OpColl, Req: 2, Class: shm.ClassArena}
		d.SetBody(0, uint64(shm.CollBlockBytes+32*b.ranks), 0, 0)
		b.push(m, d)
	}
	b.settle(2)
}

// report prints the times of the turns of a part, and the memory that it allocated.
func (b *largePod) report(what string, part func()) {
	var before, after runtime.MemStats
	b.turns = slices.Grow(b.turns[:0], 30_000)
	runtime.GC()
	runtime.ReadMemStats(&before)
	part()
	runtime.ReadMemStats(&after)
	slices.Sort(b.turns)
	b.t.Logf("%-34s %8.0f us %8.2f us in %5d turns, %7.1f KiB allocated a rank", what, us(b.turns[len(b.turns)-1]), us(b.turns[len(b.turns)/2]),
		len(b.turns), float64(after.TotalAlloc-before.TotalAlloc)/1024/scaleRanks)
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// scrape prints the time of a scrape of the metrics: on the turn, and in total.
func (b *largePod) scrape() {
	start := threadTime()
	picture := obs.Snapshot{Core: b.e.Counters()}
	onTurn := threadTime() - start
	h := obs.Handler(&obs.Sources{Snapshot: func() (obs.Snapshot, error) { return picture, nil }, Transport: "tcp", Ranks: b.ranks})
	begin := time.Now()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	b.t.Logf("%-34s %8.0f us, of which %.1f us on the turn", "/metrics", us(time.Since(begin)), us(onTurn))
	if w.Code != http.StatusOK {
		b.t.Errorf("/metrics: %d", w.Code)
	}
}

var _ link.Link = (*ackingLink)(nil)
