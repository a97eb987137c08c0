package node

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestRegionGone checks that peers release a region when its rank leaves, even if no
// other message follows, and that a peer that connects later receives the regions that
// exist.
func TestRegionGone(t *testing.T) {
	a, b := newSide(t, 2), newSide(t, 2)
	defer func() { _, _ = a.l.Close(), b.l.Close() }()
	join(t, a, b)
	stays, goes := a.m.NewRegion(8192), a.m.NewRegion(8192)
	for _, r := range []link.Ref{stays, goes} {
		if _, err := a.l.Register(r); err != nil {
			t.Fatal(err)
		}
	}
	regions := func() map[link.Region]*region { return b.l.conns[0].regions }
	s := &counting{}
	b.l.Poll(s)
	if len(regions()) != 2 {
		t.Fatalf("%d regions are known, want 2", len(regions()))
	}
	a.l.DropRegion(goes.Region)
	b.l.Poll(s)
	if len(regions()) != 1 || regions()[stays.Region] == nil {
		t.Fatalf("regions %v, want %d", regions(), stays.Region)
	}
	if _, err := a.l.Register(goes); err == nil {
		t.Error("a dropped region was registered")
	}
	join(t, a, b)
	b.l.Poll(s)
	if len(regions()) != 1 || regions()[stays.Region] == nil {
		t.Errorf("regions %v after another connection, want %d", regions(), stays.Region)
	}
}

// TestBoardIsFull checks that Register returns an error when all entries are in use, and
// that a free entry is used again under another key.
func TestBoardIsFull(t *testing.T) {
	a := newSide(t, 2)
	defer func() { _ = a.l.Close() }()
	ref := a.m.NewRegion(4096)
	seen := map[uint64]bool{}
	var keys []link.Key
	for range entries {
		k, err := a.l.Register(ref)
		if err != nil || seen[k.Key] {
			t.Fatalf("key %#x, seen before: %v, %v", k.Key, seen[k.Key], err)
		}
		seen[k.Key] = true
		keys = append(keys, k)
	}
	if _, err := a.l.Register(ref); err == nil {
		t.Fatal("a registration beyond the number of entries")
	}
	for range 2 { // the second time there is none
		a.l.Deregister(keys[7])
	}
	k, err := a.l.Register(ref)
	if err != nil || seen[k.Key] || k.Key%entries != keys[7].Key%entries {
		t.Errorf("key %#x after that of %#x: %v", k.Key, keys[7].Key, err)
	}
	if _, err := a.l.Register(ref); err == nil {
		t.Error("an entry was freed twice")
	}
	for _, r := range []link.Ref{{Region: ref.Region, Off: 1, Len: 4096}, {Region: ref.Region, Off: 4097}, {Region: ref.Region, Off: ^uint64(0), Len: 8}, {Region: 99, Len: 1}} {
		if _, err := a.l.Register(r); err == nil {
			t.Errorf("%+v was registered", r)
		}
	}
}

// TestBoardIsItsOwners checks that a holder of the board's descriptor cannot write to the
// board.
func TestBoardIsItsOwners(t *testing.T) {
	a := newSide(t, 2)
	defer func() { _ = a.l.Close() }()
	if mem, err := unix.Mmap(a.l.boardFD, 0, boardBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("a board was mapped to be written", unix.Munmap(mem))
	}
	if _, err := unix.Pwrite(a.l.boardFD, []byte{1}, 0); err == nil {
		t.Error("a board was written")
	}
	mem, err := segment.OpenToRead(a.l.boardFD, 0, boardBytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("a mapping for reading was made writable")
	}
	if err := segment.Unmap(mem); err != nil {
		t.Error(err)
	}
}

// TestSharesAreBounded checks that no more regions are shared than peers accept, so that
// a pod of many ranks does not break the protocol, and that a region that ends makes room
// for another one.
func TestSharesAreBounded(t *testing.T) {
	a := newSide(t, 2)
	defer func() { _ = a.l.Close() }()
	fd := memory(t, 4096)
	for r := range link.Region(regionsMax) {
		a.l.shares[r] = &shared{region: r, fd: -1}
	}
	if err := a.l.ShareRegion(regionsMax, fd, 0, 4096); err == nil {
		t.Fatal("a region beyond the bound of peers")
	}
	if _, err := a.l.Register(link.Ref{Region: regionsMax, Len: 4096}); err == nil {
		t.Error("a region that was not shared was registered")
	}
	delete(a.l.shares, 0)
	if err := a.l.ShareRegion(regionsMax, fd, 0, 4096); err != nil {
		t.Error(err)
	}
	for r := range link.Region(regionsMax) {
		delete(a.l.shares, r)
	}
}
