package verbs

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// owned returns an ownRegs of a device made of memory, whose regions are of 1 MiB.
func owned(t *testing.T) (*ownRegs, *fakeNIC) {
	t.Helper()
	n, err := newFabric().open("fake0")
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, 1<<20)
	return &ownRegs{nic: n, memory: func(r link.Ref) []byte { return mem[r.Off%(1<<20):][:min(r.Len, 1<<20-r.Off%(1<<20))] }}, n
}

func (k *ownRegs) mustUse(t *testing.T, ref link.Ref) int {
	t.Helper()
	n, err := k.use(ref)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOwnFinds checks that a registration is found for each part of it, and for nothing
// else.
func TestOwnFinds(t *testing.T) {
	k, n := owned(t)
	at := k.mustUse(t, link.Ref{Region: 5, Off: 4096, Len: 8192})
	for _, x := range []struct {
		region   link.Region
		off, len uint64
		found    bool
	}{{5, 4096, 8192, true}, {5, 4096, 1, true}, {5, 12287, 1, true}, {5, 4095, 2, false}, {5, 12287, 2, false}, {5, 0, 4096, false}, {6, 4096, 8192, false}} {
		got := k.find(link.Ref{Region: x.region, Off: x.off, Len: x.len})
		if x.found != (got == at) || !x.found && got != -1 {
			t.Errorf("%d bytes at %d of region %d are entry %d", x.len, x.off, x.region, got)
		}
	}
	base, key := k.address(at, link.Ref{Region: 5, Off: 4096, Len: 1})
	if addr, lkey := k.address(at, link.Ref{Region: 5, Off: 5000, Len: 1}); addr != base+904 || lkey != key || base != k.entries[at].r.addr {
		t.Errorf("byte 904 is at %#x, the first at %#x", addr, base)
	}
	if again := k.mustUse(t, link.Ref{Region: 5, Off: 5000, Len: 10}); again != at || k.entries[at].uses != 2 || k.bytes != 8192 || len(n.regions) != 1 {
		t.Errorf("entry %d is used %d times, %d bytes in %d regions", again, k.entries[at].uses, k.bytes, len(n.regions))
	}
	// A dropped registration is not found any more, and ends with its last use.
	k.dropRegion(6)
	if k.find(link.Ref{Region: 5, Off: 4096, Len: 1}) != at {
		t.Error("the end of another region")
	}
	k.dropRegion(5)
	if k.find(link.Ref{Region: 5, Off: 4096, Len: 1}) >= 0 || len(n.regions) != 1 {
		t.Errorf("of a region that has ended: found, or %d regions", len(n.regions))
	}
	other := k.mustUse(t, link.Ref{Region: 5, Off: 4096, Len: 8192}) // the number is another region's
	if other == at || len(n.regions) != 2 {
		t.Errorf("entry %d for another region of that number", other)
	}
	if k.releaseUse(at); len(n.regions) != 2 {
		t.Error("it ends before its last use")
	}
	if k.releaseUse(at); len(n.regions) != 1 || k.bytes != 8192 {
		t.Errorf("%d regions, %d bytes after its last use", len(n.regions), k.bytes)
	}
	if third := k.mustUse(t, link.Ref{Region: 7, Len: 1}); third != at {
		t.Errorf("entry %d, and %d is free", third, at)
	}
	k.releaseUse(at)
	k.releaseUse(other)
	if k.close(); len(n.regions) != 0 || k.bytes != 0 || len(k.entries) != 0 {
		t.Errorf("%d regions, %d bytes, %d entries after the end", len(n.regions), k.bytes, len(k.entries))
	}
}

// TestOwnShrinks checks that unused registrations beyond the bounds end, the least
// recently used first, and that those in use stay.
func TestOwnShrinks(t *testing.T) {
	k, n := owned(t)
	ref := func(i int) link.Ref { return link.Ref{Region: 5, Off: uint64(i) * 64, Len: 64} }
	used := k.mustUse(t, ref(0))
	for i := 1; i < ownMax; i++ {
		k.releaseUse(k.mustUse(t, ref(i)))
	}
	k.releaseUse(k.mustUse(t, ref(1))) // so that 2 is the least recently used
	if len(n.regions) != ownMax {
		t.Fatalf("%d of %d are known", len(n.regions), ownMax)
	}
	for i := range 2 {
		k.releaseUse(k.mustUse(t, ref(ownMax+i)))
		for j := range ownMax + 2 {
			want := (j < 2 || j > 2+i) && j <= ownMax+i
			if (k.find(ref(j)) >= 0) != want {
				t.Errorf("after %d more, range %d is known: %v", i+1, j, !want)
			}
		}
	}
	// A device with no room: all registrations that are not in use make room.
	n.limit = len(n.regions)
	more := k.mustUse(t, ref(1000))
	if len(n.regions) != 2 || k.bytes != 128 || k.find(ref(0)) != used {
		t.Errorf("%d regions, %d bytes, the one in use is entry %d", len(n.regions), k.bytes, k.find(ref(0)))
	}
	n.limit = 2
	if at, err := k.use(ref(1001)); err == nil || at != -1 {
		t.Errorf("entry %d, and everything is in use: %v", at, err)
	}
	k.releaseUse(more)
	n.limit = 1
	if at, err := k.use(ref(1002)); err == nil || at != -1 {
		t.Errorf("entry %d, and what was not in use was not enough: %v", at, err)
	}
	n.limit = 0
	k.releaseUse(k.mustUse(t, ref(1000)))
	if k.shrink(1<<20) || !k.shrink(0) || k.shrink(0) {
		t.Error("shrinks when there is enough, or does not, or twice")
	}
	if len(n.regions) != 1 || k.bytes != 64 {
		t.Errorf("%d regions, %d bytes", len(n.regions), k.bytes)
	}
	// At most so many bytes are retained.
	n.limit = 0
	k.releaseUse(used)
	half := link.Ref{Region: 8, Len: ownBytes / 2}
	k.releaseUse(k.mustUse(t, half))
	if k.find(ref(0)) >= 0 && k.bytes > ownBytes {
		t.Errorf("%d bytes are known", k.bytes)
	}
	k.releaseUse(k.mustUse(t, link.Ref{Region: 9, Len: ownBytes / 2}))
	if k.bytes != ownBytes || k.find(half) < 0 || k.find(ref(0)) >= 0 {
		t.Errorf("%d bytes are known", k.bytes)
	}
	k.releaseUse(k.mustUse(t, link.Ref{Region: 10, Len: 1}))
	if k.bytes != ownBytes/2+1 || k.find(half) >= 0 {
		t.Errorf("%d bytes are known when there are too many", k.bytes)
	}
}

// TestOwnDropsRegion checks that all unused registrations of a dropped region end, even
// if entries of other regions are between them.
func TestOwnDropsRegion(t *testing.T) {
	k, n := owned(t)
	var fives []int
	for i := range 6 {
		r := link.Ref{Region: link.Region(5 + i%2), Off: uint64(i) * 64, Len: 64}
		if at := k.mustUse(t, r); i%2 == 0 {
			fives = append(fives, at)
		} else {
			k.releaseUse(at)
		}
	}
	k.dropRegion(6)
	if len(n.regions) != 3 || k.bytes != 3*64 {
		t.Errorf("%d regions, %d bytes", len(n.regions), k.bytes)
	}
	k.dropRegion(5)
	for i, at := range fives {
		if k.releaseUse(at); len(n.regions) != 2-i {
			t.Errorf("%d regions after %d ends", len(n.regions), i+1)
		}
	}
	if len(k.entries) != 0 || k.bytes != 0 {
		t.Errorf("%d entries, %d bytes", len(k.entries), k.bytes)
	}
}

// TestOwnEnds checks that free entries precede those that end.
func TestOwnEnds(t *testing.T) {
	for name, end := range map[string]func(*ownRegs){"gone": func(k *ownRegs) { k.dropRegion(5) }, "close": (*ownRegs).close} {
		k, n := owned(t)
		for i, region := range []link.Region{5, 6, 6, 5} {
			k.releaseUse(k.mustUse(t, link.Ref{Region: region, Off: uint64(i) * 64, Len: 64}))
		}
		k.dropRegion(6)
		if len(k.entries) != 4 {
			t.Fatalf("%s: %d entries", name, len(k.entries))
		}
		if end(k); len(k.entries) != 0 || len(n.regions) != 0 || k.bytes != 0 {
			t.Errorf("%s: %d entries, %d regions, %d bytes", name, len(k.entries), len(n.regions), k.bytes)
		}
	}
}
