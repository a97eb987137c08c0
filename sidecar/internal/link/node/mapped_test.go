package node

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// sparse returns a sealed file without pages.
func sparse(t *testing.T, n int64) int {
	t.Helper()
	fd := sparseOpen(t, n)
	if err := segment.Seal(fd); err != nil {
		t.Fatal(err)
	}
	return fd
}

// sparseOpen returns a file without pages, of which the size alone is sealed.
func sparseOpen(t *testing.T, n int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("sparse", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		err = unix.Ftruncate(fd, n)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// TestDescriptorsOfPeers checks that regions of peers use at most half of the descriptors
// that a process may have, and that a region beyond the bound ends shared memory with its
// peer alone.
func TestDescriptorsOfPeers(t *testing.T) {
	for files, want := range map[uint64]int{256: 128, 1 << 20: regionsAll, unix.RLIM_INFINITY: regionsAll} {
		if n := regionsLimit(files); n != want {
			t.Errorf("%d regions with %d open files, want %d", n, files, want)
		}
	}
	f := newHostile(t)
	f.b.l.regionsMost = 2
	fd := sparse(t, 1<<16)
	for r := range link.Region(3) {
		f.says(controlMessage(controlHere, r, 0, 4096), fd)
	}
	f.ends(link.ErrBroken)
	if f.b.l.regions != 0 {
		t.Errorf("%d regions are counted without a peer", f.b.l.regions)
	}
	e, err := f.b.l.Prepare(1)
	if err != nil {
		t.Fatalf("another peer: %v", err)
	}
	_ = e.Close() // it has no connection
}

// TestAddressesOfAPeer checks that the size of a peer's regions is bounded, and that a
// region beyond the bound ends shared memory with that peer alone.
func TestAddressesOfAPeer(t *testing.T) {
	f := newHostile(t)
	const half = mappedPeer / 2
	fd := sparse(t, half)
	for r := range link.Region(2) {
		f.says(controlMessage(controlHere, r, 0, half), fd)
		f.b.l.conns[0].wakes = wakesMax
		f.b.l.checkSockets = true
		f.b.l.Poll(f.s)
	}
	if c := f.b.l.conns[0]; c == nil || c.mapped != mappedPeer || f.b.l.mapped != mappedPeer {
		t.Fatalf("the link reported %v", f.s)
	}
	f.says(controlMessage(controlHere, 2, 0, 4096), fd)
	f.ends(link.ErrBroken)
	if f.b.l.mapped != 0 {
		t.Errorf("%d bytes are counted without a peer", f.b.l.mapped)
	}
	if e, err := f.b.l.Prepare(0); err == nil {
		_ = e.Close() // it has no connection
		t.Error("the peer may share memory again")
	}
	e, err := f.b.l.Prepare(1)
	if err != nil {
		t.Fatalf("another peer: %v", err)
	}
	_ = e.Close() // as above
}
