package verbs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/bootstrap"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// arena is an application's memory, from which the tests send.
const (
	arenaRegion = link.Region(4)
	arenaBytes  = 4 << 20
)

type arena []byte

func (a arena) Bytes(r link.Ref) []byte { return a[r.Off : r.Off+r.Len : r.Off+r.Len] }

// taker receives frames and counts those with an unexpected payload.
type taker struct {
	want  [][]byte
	wrong error
	place []byte
}

func (s *taker) check(payload []byte) {
	if len(s.want) == 0 || !bytes.Equal(payload, s.want[0]) {
		s.wrong = fmt.Errorf("a payload of %d bytes is not the one that was sent", len(payload))
		return
	}
	s.want = s.want[1:]
}

func (s *taker) Deliver(_ link.Peer, _ *wire.Header, payload []byte) error {
	s.check(payload)
	return nil
}

func (s *taker) Place(_ link.Peer, h *wire.Header) ([]byte, error) {
	s.place = make([]byte, h.Length)
	return s.place, nil
}

func (s *taker) Placed(link.Peer) error {
	s.check(s.place)
	return nil
}
func (s *taker) Done(link.Peer, uint64, error)  {}
func (s *taker) Written(link.Peer, uint64)      {}
func (s *taker) Delivered(link.Peer, uint64)    {}
func (s *taker) Down(_ link.Peer, reason error) { s.wrong = reason }

// sending is two links, of which one sends from an arena.
type sending struct {
	from, to *Link
	arena    arena
	sink     taker
	device   *fakeNIC
	seq      uint64
}

func newSending(t *testing.T) *sending {
	t.Helper()
	f := newFabric()
	s := &sending{arena: make(arena, arenaBytes)}
	p := pairOf(t, bootstrap.ReceivesOwn, func() nic {
		n, err := f.open("fake")
		if err != nil {
			t.Fatal(err)
		}
		return n
	})
	s.from, s.to = p.A.Link.(*Link), p.B.Link.(*Link)
	s.device = s.from.nic.(*fakeNIC)
	s.from.SetMemory(s.arena)
	s.from.AddRegion(arenaRegion, 0, arenaBytes)
	s.costs()
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range s.arena {
		s.arena[i] = byte(rng.Uint32())
	}
	return s
}

// costs gives the link the costs of a real device, where a registration is worth 40
// copies of 4 KiB.
func (s *sending) costs() {
	s.from.regs.chooser.Costs().Calibrate(reuse.PathSend, []reuse.Sample{{Bytes: 0, NS: 0}, {Bytes: 4096, NS: 1000}}, []reuse.Sample{{Bytes: 1, NS: 40_000}}, 50)
}

// send sends n bytes at off and waits until they have arrived.
func (s *sending) send(t *testing.T, off, n uint64) {
	t.Helper()
	f := &link.Frame{Payload: link.Ref{Region: arenaRegion, Off: off, Len: n}}
	s.seq++
	f.Head.Type, f.Head.Seq, f.Head.A, f.Head.Length = wire.Data, s.seq, 1, uint32(n)
	s.sink.want = append(s.sink.want, bytes.Clone(s.arena[off:off+n]))
	for posted := false; len(s.sink.want) > 0; {
		if !posted {
			posted = s.from.Post(0, []*link.Frame{f}) == 1
		}
		s.from.Commit()
		s.to.Commit()
		s.from.Poll(&s.sink)
		s.to.Poll(&s.sink)
		if s.sink.wrong != nil {
			t.Fatal(s.sink.wrong)
		}
	}
}

// TestReuse checks that buffers that are sent repeatedly are registered once each, and
// then gathered from, and that the bytes that arrive are right, whole and in pieces.
func TestReuse(t *testing.T) {
	s := newSending(t)
	sizes := []uint64{200, 1000, 4096, 20_000}
	for round := range 2000 {
		i := uint64(round) % 16
		s.send(t, i*(64<<10)+i, sizes[i%4])
	}
	c := s.from.Buffers(0)
	if c.Seen != 12 || c.Frequent != 12 || c.Registered != 12 { // copying 200 bytes costs less than finding them
		t.Errorf("%+v", c)
	}
	if c.GatheredBytes < 4*c.CopiedBytes {
		t.Errorf("most bytes are copied: %+v", c)
	}
	s.from.DropRegion(arenaRegion)
	for left := len(s.from.regs.regions); s.from.Poll(&s.sink) > 0; {
		now := len(s.from.regs.regions)
		if left-now > settlesPerPoll {
			t.Errorf("%d registrations ended in one Poll, want at most %d", left-now, settlesPerPoll)
		}
		left = now
	}
	if n := len(s.from.regs.regions); n != 0 || s.from.Arm() {
		t.Errorf("%d registrations of a region that was dropped", n)
	}
}

// TestReuseRefused checks that with a device that registers nothing more everything is
// copied, with one warning.
func TestReuseRefused(t *testing.T) {
	s := newSending(t)
	var log warnings
	s.from.regs.log = slog.New(&log)
	s.device.limit = len(s.device.regions)
	for round := range uint64(2000) {
		s.send(t, round%8*8192, 4096)
	}
	if c := s.from.Buffers(0); c.GatheredBytes != 0 || c.Frequent != 0 || c.CopiedBytes != 2000*4096 {
		t.Errorf("%+v", c)
	}
	if log != 1 {
		t.Errorf("%d warnings, want 1", log)
	}
	s.device.limit = 0
	for round := range uint64(4000) {
		s.send(t, round%8*8192, 4096)
	}
	if c := s.from.Buffers(0); c.Frequent != 8 {
		t.Errorf("registrations are possible again: %+v", c)
	}
}

// warnings counts the warnings of a log.
type warnings int

func (*warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		*w++
	}
	return nil
}
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w *warnings) WithGroup(string) slog.Handler      { return w }

// TestReuseSmallBudget checks that registrations are evicted and made again if fewer
// bytes may be registered than are used, and that the bytes that arrive are right.
func TestReuseSmallBudget(t *testing.T) {
	s := newSending(t)
	chooser, err := gather.New(gather.Config{Local: regcache.Config{PinnedBytes: 64 << 10}}, s.from.regs, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.from.regs.chooser = chooser
	s.from.AddRegion(arenaRegion, 0, arenaBytes)
	s.costs()
	for round := range uint64(6000) {
		s.send(t, round%24*8192, 4096)
	}
	local, _ := chooser.Caches()
	if local.Evictions == 0 || local.PinnedBytes > 64<<10 {
		t.Errorf("%+v", local)
	}
	if c := s.from.Buffers(0); c.GatheredBytes == 0 || c.CopiedBytes == 0 {
		t.Errorf("%+v", c)
	}
}

// TestReuseBreaks checks that connections that end during gathers release their uses.
func TestReuseBreaks(t *testing.T) {
	s := newSending(t)
	for round := range uint64(400) {
		s.send(t, round%4*32768, 20_000)
	}
	for range 50 {
		for i := range uint64(4) {
			f := &link.Frame{Payload: link.Ref{Region: arenaRegion, Off: i * 32768, Len: 20_000}}
			s.seq++
			f.Head.Type, f.Head.Seq, f.Head.A, f.Head.Length = wire.Data, s.seq, 1, 20_000
			s.from.Post(0, []*link.Frame{f})
		}
		s.from.Commit()
		s.from.Poll(&taker{})
		s.from.Forget(0)
		s.to.Forget(0)
		join(t, s.from, s.to)
	}
	for n, u := range s.from.regs.uses {
		if u.refs != 0 {
			t.Errorf("use %d is not over: %+v", n, u)
		}
	}
	for round := range uint64(100) {
		s.send(t, round%4*32768, 20_000)
	}
}

// TestGathersAsked checks that the core's question before a copy counts as a use,
// registers a buffer that is worth it, and agrees with the way that the frame is sent.
func TestGathersAsked(t *testing.T) {
	s := newSending(t)
	s.from.cfg.Reuse = bootstrap.ReuseAlways
	ref := link.Ref{Region: arenaRegion, Off: 4096, Len: 4096}
	asked := 0
	for !s.from.Gathers(0, ref) {
		if asked++; asked > 1000 {
			t.Fatal("a buffer that is used a thousand times is copied")
		}
	}
	c := s.from.Buffers(0)
	if asked == 0 || c.Registered != 1 || c.CopiedBytes != uint64(asked)*ref.Len || c.GatheredBytes != 0 {
		t.Errorf("after %d copies: %+v", asked, c)
	}
	s.send(t, ref.Off, ref.Len)
	if c := s.from.Buffers(0); c.GatheredBytes != ref.Len || c.Registered != 1 {
		t.Errorf("%+v", c)
	}
	if s.from.Gathers(0, link.Ref{Region: arenaRegion, Off: 0, Len: gatherMin - 1}) {
		t.Error("a payload that is cheaper copied is gathered")
	}
	copied, gathered := s.from.regs.chooser.Moved()
	s.from.EndSession(0)
	if a, b := s.from.regs.chooser.Moved(); a != copied || b != gathered || gathered != ref.Len {
		t.Errorf("%d and %d bytes moved, %d and %d after the session", copied, gathered, a, b)
	}
	if n := testing.AllocsPerRun(100, func() { s.from.Gathers(0, ref) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestEndSession checks that the next rank with a session's number inherits no decision.
func TestEndSession(t *testing.T) {
	s := newSending(t)
	ref := link.Ref{Region: arenaRegion, Off: 4096, Len: 4096}
	for range 2000 {
		if s.from.Gathers(0, ref) {
			s.send(t, ref.Off, ref.Len)
		}
	}
	trials := s.from.regs.trials
	if _, decided := trials.Decided(0, ref.Len); !decided {
		t.Fatal("nothing was decided: the test shows nothing")
	}
	s.from.EndSession(0)
	if _, decided := trials.Decided(0, ref.Len); decided {
		t.Error("the decision of a rank that has left applies to the next one")
	}
}

// TestGathersTried checks that the link by default gathers as long as that is tried, and
// that every payload is counted once, whether copied or gathered.
func TestGathersTried(t *testing.T) {
	s := newSending(t)
	ref := link.Ref{Region: arenaRegion, Off: 4096, Len: 4096}
	const uses = 20_000
	gathered := uint64(0)
	for range uses {
		if s.from.Gathers(0, ref) {
			gathered++
			s.send(t, ref.Off, ref.Len)
		}
	}
	c := s.from.Buffers(0)
	if gathered == 0 || c.Registered != 1 || c.GatheredBytes != gathered*ref.Len || c.CopiedBytes != (uses-gathered)*ref.Len {
		t.Errorf("%d of %d gathered: %+v", gathered, uses, c)
	}
	// Here a gathered send waits until its bytes have arrived, and a copied one does not
	// wait: gathering cannot have won.
	if gathered > uses/100 {
		t.Errorf("%d of %d gathered though it takes longer", gathered, uses)
	}
}

// TestWindowWithUnusedRegistrations checks that a window is registered even if unused
// registrations have taken everything that the device, or the limit of locked memory,
// permits.
func TestWindowWithUnusedRegistrations(t *testing.T) {
	s := newSending(t)
	s.fillIdle(t)
	if _, err := s.from.Expose(link.Ref{Region: arenaRegion, Len: arenaBytes}); err != nil {
		t.Fatal(err)
	}
}

// fillIdle makes unused registrations of an arena that take everything that the device,
// or the limit of locked memory, permits.
func (s *sending) fillIdle(t *testing.T) {
	t.Helper()
	s.device.limit = len(s.device.regions) + 8
	for i := range uint64(8) {
		k, err := s.from.Register(link.Ref{Region: arenaRegion, Off: i * 8192, Len: 4096})
		if err != nil {
			t.Fatal(err)
		}
		s.from.Release(k)
	}
}

// TestOwnWithUnusedRegistrations checks that the engine's own memory, for peers and for
// its operations, is registered although unused registrations fill the limit.
func TestOwnWithUnusedRegistrations(t *testing.T) {
	s := newSending(t)
	const engines = link.Region(1)
	s.fillIdle(t)
	if _, err := s.from.Register(link.Ref{Region: engines, Len: 64 << 10}); err != nil {
		t.Errorf("a ring: %v", err)
	}
	s.fillIdle(t)
	s.device.limit = len(s.device.regions)
	n, err := s.from.regs.use(link.Ref{Region: engines, Off: 64 << 10, Len: 64 << 10})
	if err != nil {
		t.Fatalf("memory of the engine: %v", err)
	}
	s.from.regs.releaseUse(n)
}

// TestConnectionWithUnusedRegistrations checks that a later connection gets memory
// although a cache that knows the limit of locked memory fills it: Prepare makes the
// engine end registrations.
func TestConnectionWithUnusedRegistrations(t *testing.T) {
	s := newSending(t)
	turns := 0
	s.fillIdle(t)
	s.from.cfg.InTurn = func(do func()) error { turns++; do(); return nil }
	e, err := s.from.Prepare()
	if err != nil || turns != 1 {
		t.Fatalf("%v, the engine was called %d times, want 1", err, turns)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	s.device.limit = 1 // and no unused registrations
	if s.from.regs.chooser.Yield(1 << 30) {
		t.Fatal("a registration still yields: the test shows nothing")
	}
	if _, err := s.from.Prepare(); err == nil {
		t.Error("prepared without memory")
	}
}
