package node

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// pages returns how many pages of a file are allocated.
func pages(t *testing.T, fd int) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512 / pageBytes
}

// writable returns a file of n pages, of which none is allocated, and its mapping.
func writable(t *testing.T, n int, seal bool) (fd int, mem []byte) {
	t.Helper()
	fd = sparseOpen(t, int64(n)*pageBytes)
	mem, err := unix.Mmap(fd, 0, n*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if seal {
		if err := segment.Seal(fd); err != nil {
			t.Fatal(err)
		}
	}
	return fd, mem
}

// opened returns a region of a duplicate of the descriptor.
func opened(t *testing.T, l *Link, fd int, off, size uint64) *region {
	t.Helper()
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.openRegion(own, off, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

// TestReadingAllocatesNothing checks that another sidecar that reads memory of a rank
// gets zeros where pages are missing, and allocates none, whatever the rank has done to
// the memory.
func TestReadingAllocatesNothing(t *testing.T) {
	const n = 64
	for name, c := range map[string]struct {
		seal    bool
		written []int // pages
		mapped  bool
	}{
		"no page":                   {true, nil, true},
		"every second page":         {true, []int{0, 2, 4, 6, 8, 10, 62}, true},
		"pages that can be removed": {false, []int{0, 1, 2, 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSide(t, 2)
			defer func() { _ = s.l.Close() }()
			fd, mem := writable(t, n, c.seal)
			for _, p := range c.written {
				mem[p*pageBytes] = byte(p + 1)
			}
			had := pages(t, fd)
			r := opened(t, s.l, fd, 0, n*pageBytes)
			if (r.mem != nil) != c.mapped {
				t.Errorf("mapped: %v", r.mem != nil)
			}
			dst, want := make([]byte, n*pageBytes), make([]byte, n*pageBytes)
			for _, p := range c.written {
				want[p*pageBytes] = byte(p + 1)
			}
			for round := range 20 {
				for i := range dst {
					dst[i] = 0xff
				}
				for at := 0; at < len(dst); at += 3 * pageBytes / 2 {
					if err := r.read(dst[at:min(len(dst), at+3*pageBytes/2)], uint64(at)); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(dst, want) {
					t.Fatalf("round %d: the bytes differ from those written", round)
				}
				s.l.unmapping.Wait() // probes have ended
			}
			if now := pages(t, fd); now != had {
				t.Errorf("reading changed the number of pages to %d from %d", now, had)
			}
		})
	}
}

// TestReadsBecomeCopies checks that memory known to have pages is read without a system
// call, even if the pages are written later.
func TestReadsBecomeCopies(t *testing.T) {
	const n = 64
	s := newSide(t, 2)
	defer func() { _ = s.l.Close() }()
	fd, mem := writable(t, n, true)
	r := opened(t, s.l, fd, 8*pageBytes, (n-8)*pageBytes)
	dst := make([]byte, 8*pageBytes)
	settled := func(what string, from, to int) {
		t.Helper()
		for try := 0; ; try++ {
			before := s.l.stats.ReadByCall
			for p := from; p < to; p += 8 {
				if err := r.read(dst, uint64(p)*pageBytes); err != nil {
					t.Fatal(err)
				}
				if want := mem[(8+p)*pageBytes]; dst[0] != want || dst[len(dst)-1] != 0 {
					t.Fatalf("%s: page %d begins with %d, want %d", what, p, dst[0], want)
				}
			}
			if s.l.stats.ReadByCall == before {
				return
			}
			if s.l.unmapping.Wait(); try > 4*skipMax {
				t.Fatalf("%s: system calls never stop", what)
			}
		}
	}
	for p := range 24 {
		mem[(8+p)*pageBytes] = byte(p)
	}
	settled("the first pages", 0, 24)
	for p := range n - 8 {
		mem[(8+p)*pageBytes] = byte(3 * p)
	}
	settled("all", 0, n-8)
	if len(r.spans) != 1 || r.spans[0] != (extent{0, (n - 8) * pageBytes}) {
		t.Errorf("pages are known in %v", r.spans)
	}
}

// TestSpansAreBounded checks that the number of known ranges is bounded however a rank
// scatters its pages, and that the bytes are right.
func TestSpansAreBounded(t *testing.T) {
	const n = 4 * spansMax
	s := newSide(t, 2)
	defer func() { _ = s.l.Close() }()
	fd, mem := writable(t, n, true)
	for p := 0; p < n; p += 2 {
		mem[p*pageBytes] = byte(p)
	}
	r := opened(t, s.l, fd, 0, n*pageBytes)
	dst := make([]byte, 16)
	for range 3 {
		for p := range n {
			if err := r.read(dst, uint64(p)*pageBytes); err != nil {
				t.Fatal(err)
			}
			if want := byte(p &^ 1); p%2 == 0 && dst[0] != want || p%2 == 1 && dst[0] != 0 {
				t.Fatalf("page %d begins with %d", p, dst[0])
			}
			s.l.unmapping.Wait()
		}
	}
	if len(r.spans) > spansMax {
		t.Errorf("%d ranges are known, want at most %d", len(r.spans), spansMax)
	}
	if now := pages(t, fd); now != n/2 {
		t.Errorf("reading changed the number of pages to %d from %d", now, n/2)
	}
}

// TestLentIsCounted checks that the bytes that a peer reads from this side's memory count
// as sent.
func TestLentIsCounted(t *testing.T) {
	a, b, _ := three(t)
	s := &counting{}
	src, _ := reads(t, a, 1, b, 1, 1<<20)
	for i := 0; len(s.dones) == 0 && i < 10_000; i++ {
		a.l.Poll(s)
	}
	if err := s.dones[1]; err != nil || len(s.dones) != 1 {
		t.Fatalf("the read: %v", s.dones)
	}
	k, err := b.l.Register(src)
	if err != nil {
		t.Fatal(err)
	}
	_, before := b.l.Bytes()
	b.l.Deregister(k)
	b.l.Deregister(k)
	if _, now := b.l.Bytes(); now != before {
		t.Errorf("a registration that ends without a read counts %d bytes", now-before)
	}
	if k, err = b.l.Register(src); err != nil {
		t.Fatal(err)
	}
	b.l.Release(k)
	b.l.Release(link.Key{Key: k.Key})
	if _, now := b.l.Bytes(); now != before+src.Len {
		t.Errorf("%d bytes are counted, want %d", now-before, src.Len)
	}
}
