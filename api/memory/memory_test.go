package memory

import (
	"math"
	"testing"
)

// TestNeed checks that each property of a job adds to its memory, and that the largest job that
// the schema allows does not overflow.
func TestNeed(t *testing.T) {
	const mi = 1 << 20
	s := Sizes{Arena: 255 * mi, Slab: 0, Credit: mi}
	for _, c := range []struct {
		s                 Sizes
		here, ranks, pods int
		more              int64 // MiB in addition to the heap (TestEverythingKeptIsCounted)
	}{
		{Sizes{}, 0, 0, 1, 0},
		{s, 1, 1, 1, 258 + 6},
		{s, 2, 4, 2, 2*258 + 2*6 + 2},
		{Sizes{Arena: 255 * mi, Credit: mi, Encrypted: true}, 2, 4, 2, 2*258 + 2*6 + 4},
		{Sizes{Arena: 255 * mi, Credit: 512 * mi}, 1, 2, 2, 258 + 2*512 + 32 + 2},
	} {
		want := (c.s.Heap(c.here, c.ranks, c.pods) + int64(c.pods)*poolBytes + PoolWarm + c.more*mi + mi - 1) &^ (mi - 1)
		if got := c.s.Need(c.here, c.ranks, c.pods); got != want {
			t.Errorf("%+v, %d of %d ranks in a pod of %d: %d, want %d", c.s, c.here, c.ranks, c.pods, got, want)
		}
	}
	// 128 ranks in each of 4,096 pods: the sidecar's own memory is not most of a node's.
	large := Sizes{Credit: CreditOf(4096)}.Own(128, 128*4096, 4096)
	if large < 4<<30 || large > 10<<30 {
		t.Errorf("a sidecar of 4,096 pods keeps %d MiB for itself", large/mi)
	}
	for pods := 2; pods <= 4096; pods++ {
		if CreditOf(pods) > CreditOf(pods-1) || CreditOf(pods) < 128<<10 || CreditOf(pods)%(64<<10) != 0 {
			t.Fatalf("the credit of %d pods is %d", pods, CreditOf(pods))
		}
		if less, more := s.Own(1, pods, pods-1), s.Own(1, pods, pods); more < less {
			t.Fatalf("%d pods take less than %d: %d and %d", pods, pods-1, more, less)
		}
	}
	if CreditOf(1) != CreditDefault || CreditOf(ManyPods) != CreditDefault || CreditOf(1024) != CreditDefault/4 || CreditOf(4096) != 128<<10 {
		t.Errorf("credit %d, %d, %d, %d", CreditOf(1), CreditOf(ManyPods), CreditOf(1024), CreditOf(4096))
	}
	largest := Sizes{Arena: 16 << 40, Slab: 1 << 30, Credit: 1 << 30, Encrypted: true}
	if got := largest.Need(1024, 524288, 4096); got < 1024*(16<<40) || got > math.MaxInt64/2 {
		t.Errorf("the largest job: %d", got)
	}
}

// TestCounted checks that only the first piece of a default arena is counted, and that the
// pieces of an arena together use no more than is counted for it.
func TestCounted(t *testing.T) {
	const mi = 1 << 20
	for _, c := range []struct {
		s    Sizes
		want int64
	}{
		{Sizes{Arena: 256 * mi}, 256 * mi},
		{Sizes{Arena: 256 * mi, First: true}, ArenaFirst},
		{Sizes{Arena: mi, First: true}, mi},
	} {
		if got := c.s.Counted(); got != c.want {
			t.Errorf("%+v: %d bytes are counted, want %d", c.s, got, c.want)
		}
	}
	s := Sizes{Arena: 100*mi + 12345, Slab: 4 * mi}
	took, unit := s.Attached(), int64(4096)
	for at := int64(0); at < s.Arena; at += unit {
		took += Piece(min(unit, s.Arena-at))
	}
	if took > s.Rank() {
		t.Errorf("a rank takes %d bytes in steps, of %d that are counted", took, s.Rank())
	}
}

// TestRaw checks that the ring of raw Ethernet is counted, and not as memory of the Go program.
func TestRaw(t *testing.T) {
	s := Sizes{Arena: ArenaDefault, Slab: SlabDefault, Credit: CreditDefault, Ether: true}
	r := s
	r.Raw = true
	if got := r.Need(4, 16, 4) - s.Need(4, 16, 4); got != EtherRing-2*EtherSocket {
		t.Errorf("raw Ethernet adds %d bytes to UDP, want %d", got, EtherRing-2*EtherSocket)
	}
	none := s
	none.Ether = false
	if got := s.Own(4, 16, 4) - s.Heap(4, 16, 4) - none.Own(4, 16, 4) + none.Heap(4, 16, 4); got != 2*EtherSocket {
		t.Errorf("UDP adds %d bytes of the kernel, want %d", got, 2*EtherSocket)
	}
	if got := r.Heap(4, 16, 4) - s.Heap(4, 16, 4); got != 0 {
		t.Errorf("raw Ethernet adds %d bytes to the heap, want none", got)
	}
}

// TestArenaFor checks that the arenas fit into the available memory, and that larger ones would
// not.
func TestArenaFor(t *testing.T) {
	const mi = 1 << 20
	s := Sizes{Slab: SlabDefault}
	for _, c := range []struct{ available, ranks, pods int64 }{{700 * mi, 4, 2}, {20 << 30, 100, 1}, {20 << 30, 1000, 10}, {64 * mi, 1, 1}} {
		arena := s.ArenaFor(c.available, int(c.ranks), int(c.pods))
		with := func(arena int64) int64 {
			return Sizes{Arena: arena, Slab: s.Slab}.AtStart(int(c.ranks), int(c.pods))
		}
		if arena == 0 || with(arena) > c.available || with(arena+arena/1000+4096) <= c.available {
			t.Errorf("%+v: an arena of %d takes %d", c, arena, with(arena))
		}
	}
	for _, c := range []struct {
		available   int64
		ranks, want int64
	}{{20 << 30, 4, ArenaDefault}, {20 << 30, 100, 198 * mi}, {mi, 4, ArenaFirst}, {20 << 30, 4000, ArenaFirst}} {
		if got := s.Default(c.available, int(c.ranks), 1); got != c.want {
			t.Errorf("%d ranks of %d bytes: %d by default, want %d", c.ranks, c.available, got, c.want)
		}
	}
}
