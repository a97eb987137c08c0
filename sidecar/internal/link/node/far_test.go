package node

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// offloads returns a side that offloads, and its peer.
func offloads(t *testing.T, copies *copyeng.Copies) (a, b *side) {
	t.Helper()
	a, b = newSideOver(t, 1, copies), newSide(t, 1)
	join(t, a, b)
	t.Cleanup(func() {
		if err := errors.Join(copies.Close(), a.l.Close(), b.l.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

// evenRegion makes a region of pages that stay, which can be mapped, and fills it.
func evenRegion(s *side, n int) link.Ref {
	ref := s.m.NewRegion(n)
	if ref.Region%2 != 0 {
		ref = s.m.NewRegion(n)
	}
	for i := range s.m.Bytes(ref) {
		s.m.Bytes(ref)[i] = byte(i * 7)
	}
	return ref
}

// readAll reads src into dst, and returns how it ended.
func readAll(t *testing.T, a, b *side, dst, src link.Ref) error {
	t.Helper()
	k, err := b.l.Register(src)
	if err != nil {
		t.Fatal(err)
	}
	defer b.l.Deregister(k)
	s := &counting{}
	if err := a.l.Read(0, 1, dst, k); err != nil {
		t.Fatal(err)
	}
	for len(s.dones) == 0 {
		a.l.Poll(s)
		b.l.Poll(s)
	}
	return s.dones[1]
}

// knowPages reads src until all of its pages are known.
func knowPages(t *testing.T, a, b *side, dst, src link.Ref) {
	t.Helper()
	for known := false; !known; {
		if err := readAll(t, a, b, dst, src); err != nil {
			t.Fatal(err)
		}
		known = a.l.conns[0].regions[src.Region].covers(0, src.Len)
	}
}

// TestEngineCopiesNoByte checks that the engine's thread copies no byte of a large read, and
// all of a small one.
func TestEngineCopiesNoByte(t *testing.T) {
	copies := copyengtest.Copies(t, 1)
	a, b := offloads(t, copies)
	src, dst := evenRegion(b, 4<<20), a.m.NewRegion(4<<20)
	knowPages(t, a, b, dst, src)
	clear(a.m.Bytes(dst))
	before := copies.Stats()
	if err := readAll(t, a, b, dst, src); err != nil || !bytes.Equal(a.m.Bytes(dst), b.m.Bytes(src)) {
		t.Fatalf("the read ended with %v, or brought other bytes", err)
	}
	large := copies.Stats()
	if large.Inline != before.Inline || large.Offloaded-before.Offloaded != src.Len {
		t.Errorf("the engine has copied %d bytes of %d, and the thread %d", large.Inline-before.Inline, src.Len, large.Offloaded-before.Offloaded)
	}
	const little = copyengtest.Least - 1
	if err := readAll(t, a, b, dst.Slice(0, little), src.Slice(0, little)); err != nil {
		t.Fatal(err)
	}
	if small := copies.Stats(); small.Inline-large.Inline != little || small.Offloaded != large.Offloaded {
		t.Errorf("of a small read, the engine has copied %d bytes, and the thread %d", small.Inline-large.Inline, small.Offloaded-large.Offloaded)
	}
}

// TestFailingChannelReads checks that nothing is lost if the channel fails.
func TestFailingChannelReads(t *testing.T) {
	broken := &copyengtest.Failing{Left: 1 << 30}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: broken}} })
	a, b := offloads(t, copies)
	src, dst := evenRegion(b, 4<<20), a.m.NewRegion(4<<20)
	knowPages(t, a, b, dst, src)
	broken.Left = 10
	for range 3 {
		clear(a.m.Bytes(dst))
		if err := readAll(t, a, b, dst, src); err != nil || !bytes.Equal(a.m.Bytes(dst), b.m.Bytes(src)) {
			t.Fatalf("the read ended with %v, or brought other bytes", err)
		}
	}
	if s := copies.Stats(); s.Fallbacks == 0 || copies.Alive() || a.l.conns[0].regions[src.Region].faulty {
		t.Errorf("%d pieces have failed, and the channel is used: %v", s.Fallbacks, copies.Alive())
	}
}

// TestTruncatedMemory checks that a read of a file that its owner has truncated fails, as
// it does without a channel, although the pages were known.
func TestTruncatedMemory(t *testing.T) {
	const n = 4 << 20
	copies := copyengtest.Copies(t, 1)
	a, b := offloads(t, copies)
	src, dst := evenRegion(b, n), a.m.NewRegion(n)
	knowPages(t, a, b, dst, src)
	// The kernel lets no process truncate the sealed file: the test replaces it by another one.
	fd, err := unix.MemfdCreate("truncated", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, n)
	}
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	r := a.l.conns[0].regions[src.Region]
	mapped, sealed := r.mem, r.fd
	r.mem, r.fd = mem, fd
	if err := unix.Ftruncate(fd, n/2); err != nil {
		t.Fatal(err)
	}
	if err := readAll(t, a, b, dst, src); !errors.Is(err, link.ErrBroken) {
		t.Errorf("the read ended with %v, want ErrBroken", err)
	}
	r.mem, r.fd = mapped, sealed
	if err := errors.Join(unix.Munmap(mem), unix.Close(fd)); err != nil {
		t.Error(err)
	}
	if err := readAll(t, a, b, dst, src); err != nil {
		t.Errorf("the next read ended with %v", err)
	}
}

// TestRegionGoesDuringCopies checks that the mapping of a region that the peer drops stays
// until no piece is copied from it, and that the read fails.
func TestRegionGoesDuringCopies(t *testing.T) {
	copies := copyengtest.Copies(t, 1)
	a, b := offloads(t, copies)
	s := &counting{}
	for range 20 {
		src, dst := evenRegion(b, 2<<20), a.m.NewRegion(2<<20)
		knowPages(t, a, b, dst, src)
		k, err := b.l.Register(src)
		if err == nil {
			err = a.l.Read(0, 1, dst, k)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.l.Poll(s)
		b.l.Deregister(k)
		b.l.DropRegion(src.Region)
		for clear(s.dones); len(s.dones) == 0; {
			a.l.Poll(s)
			b.l.Poll(s)
		}
		if err := s.dones[1]; !errors.Is(err, link.ErrKey) {
			t.Fatalf("the read ended with %v, want ErrKey", err)
		}
	}
}
