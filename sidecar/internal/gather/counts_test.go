package gather

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// TestMovedAddsUp checks that the bytes copied and gathered add up to those sent, of
// ranks that exist and of those that have left.
func TestMovedAddsUp(t *testing.T) {
	r, _ := over(t, 1<<40, Config{Sessions: 2})
	r.AddRegion(arena+1, 1, 1<<20)
	sent := uint64(0)
	send := func() {
		for i := range uint64(400) {
			ref := link.Ref{Region: arena + link.Region(i%2), Off: i / 2 % 4 * 4096, Len: 2048}
			if l, ok := r.Choose(reuse.PathSend, ref); ok {
				r.Done(l)
			}
			sent += ref.Len
		}
	}
	check := func() {
		t.Helper()
		if copied, gathered := r.Moved(); copied == 0 || gathered == 0 || copied+gathered != sent {
			t.Errorf("%d bytes copied and %d gathered, %d were sent", copied, gathered, sent)
		}
	}
	send()
	check()
	r.EndSession(0)
	check()
	r.EndSession(1)
	send()
	check()
}

// TestUnknownRanks checks that memory of a rank beyond the bound is copied, and not
// counted.
func TestUnknownRanks(t *testing.T) {
	r, _ := over(t, 1<<40, Config{Sessions: 1})
	r.AddRegion(arena+1, 1, 1<<20)
	if r.Knows(arena+1) || r.Buffers(1) != (link.BufferCounts{}) {
		t.Errorf("memory of a rank beyond the bound is known: %+v", r.Buffers(1))
	}
	r.EndSession(1)
	r.DropRegion(arena + 1)
	r.DropRegion(arena)
	if r.Knows(arena) {
		t.Error("a region that was dropped is known")
	}
}

// TestLaterIsNotNever checks that only a range that exceeds the turn's budget may be
// asked for again in the next turn, and that a registered range is returned whatever was
// refused before.
func TestLaterIsNotNever(t *testing.T) {
	r, _ := over(t, 1<<40, Config{Remote: &regcache.Config{PinnedBytes: 1 << 20, TurnBytes: 8 << 12}})
	first, err := r.Register(at(0, 8<<12))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Register(at(100, 4096)); !errors.Is(err, link.ErrLater) {
		t.Errorf("beyond the turn: %v, want %v", err, link.ErrLater)
	}
	if again, err := r.Register(at(1, 4096)); err != nil || again.Key != first.Key {
		t.Errorf("what is registered is refused: %v", err)
	}
	if _, err := r.Register(at(200, 2<<20)); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than all: %v, want %v", err, ErrNoRoom)
	}
}

// TestGathersCounts checks that a buffer is registered because of the uses that Gathers
// counts; until then they are counted as copied, and from then on Choose counts them.
func TestGathersCounts(t *testing.T) {
	r, d := over(t, 1<<40, Config{})
	asked := uint64(0)
	for !r.Gathers(reuse.PathSend, at(0, 2048)) {
		if asked++; asked > 1000 {
			t.Fatal("never worth it")
		}
	}
	if c := r.Buffers(0); asked < 2 || len(d.keys) != 1 || c.CopiedBytes != asked*2048 || c.GatheredBytes != 0 || c.Registered != 1 {
		t.Errorf("after %d uses: %+v, %d registrations", asked, c, len(d.keys))
	}
	l, ok := r.Choose(reuse.PathSend, at(0, 2048))
	if !ok || r.Buffers(0).GatheredBytes != 2048 {
		t.Fatalf("it is not gathered from: %+v", r.Buffers(0))
	}
	r.Done(l)
}
