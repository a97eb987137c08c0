package segment

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/golden"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/ring"
)

var small = Geometry{SubmitEntries: 64, CompleteEntries: 128, SlabBytes: 100_000}

// create makes a segment for one test.
func create(t *testing.T, size int) (int, []byte) {
	t.Helper()
	fd, mem, err := Create("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(Unmap(mem), unix.Close(fd)); err != nil {
			t.Error(err)
		}
	})
	return fd, mem
}

func TestGoldenHeader(t *testing.T) {
	_, mem := create(t, small.Bytes())
	c, err := Format(mem, small, 7)
	if err != nil {
		t.Fatal(err)
	}
	c.SetSleeping(true)
	c.SetRetired(5)
	atomic.StoreUint32(c.Waiting(), 1)
	c.SetFailure("rank 3 failed")
	c.SetPlace(shm.Place(0).Waiting(true).Timed(true))
	c.SetLooked(77)
	c.SetTags(shm.TagsOpenMPI)
	c.SetActed(78)
	golden.Compare(t, "header", mem[:512])
}

// TestBothSides: the client reads in the memory the values that the sidecar wrote.
func TestBothSides(t *testing.T) {
	fd, mem := create(t, small.Bytes())
	c, err := Format(mem, small, 7)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(fd, small.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Unmap(other) }() // unmapped at the end of the test; an error does not matter
	d, err := Read(other)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Slab()) != 102400 || len(c.Slab()) != len(d.Slab()) {
		t.Errorf("slabs of %d and %d bytes, want 102400", len(c.Slab()), len(d.Slab()))
	}
	c.Slab()[102399] = 9
	c.SetSleeping(true)
	c.SetRetired(math.MaxUint64)
	c.SetFailure(strings.Repeat("long", 100))
	atomic.StoreUint32(d.Waiting(), 1)
	d.SetPlace(shm.Place(0).Waiting(true))
	if p := c.Place(); !p.Waits() {
		t.Errorf("place %#x does not wait", p)
	}
	if d.Slab()[102399] != 9 || !d.Sleeping() || d.Retired() != math.MaxUint64 || *c.Waiting() != 1 {
		t.Error("one side does not see what the other wrote")
	}
	if got := d.Failure(); got != strings.Repeat("long", 63) {
		t.Errorf("a failure of 400 bytes became %q", got)
	}
	c.SetSleeping(false)
	if d.Sleeping() {
		t.Error("still asleep")
	}
	// A client that writes a wrong length makes the sidecar read only the client's own memory.
	binary.LittleEndian.PutUint32(other[offFailure:], math.MaxUint32)
	if got := len(c.Failure()); got != failureMax {
		t.Errorf("a failure of %d bytes", got)
	}
}

// TestSeals: neither side can change the size, nor remove the seals.
func TestSeals(t *testing.T) {
	fd, mem := create(t, 4*pageBytes)
	for _, size := range []int64{0, pageBytes, 4*pageBytes - 1, 4*pageBytes + 1, 1 << 30} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("sizing to %d: %v, want EPERM", size, err)
		}
	}
	if err := unix.Fallocate(fd, 0, 4*pageBytes, pageBytes); !errors.Is(err, unix.EPERM) {
		t.Errorf("growing by fallocate: %v, want EPERM", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("one more seal: %v, want EPERM", err)
	}
	if len(mem) != 4*pageBytes {
		t.Errorf("a mapping of %d bytes", len(mem))
	}
}

func TestOpenRefuses(t *testing.T) {
	fd, _ := create(t, 4*pageBytes)
	for _, size := range []int{0, 1, 3 * pageBytes, 4*pageBytes + 1, 1 << 40, -1} {
		if _, err := Open(fd, size); err == nil || !strings.Contains(err.Error(), "announced") {
			t.Errorf("opened as %d bytes: %v", size, err)
		}
	}
	open, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(open) }() // nothing is in it
	if err := unix.Ftruncate(open, pageBytes); err != nil {
		t.Fatal(err)
	}
	for _, seals := range []int{0, unix.F_SEAL_GROW} {
		if _, err := unix.FcntlInt(uintptr(open), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(open, pageBytes); err == nil || !strings.Contains(err.Error(), "not sealed") {
			t.Errorf("memory with seals %#x: %v", seals, err)
		}
	}
	file, err := os.Create(t.TempDir() + "/plain")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // nothing is in it
	if _, err := Open(int(file.Fd()), 0); err == nil {
		t.Error("an ordinary file was taken")
	}
	if _, err := Open(-1, pageBytes); err == nil {
		t.Error("no file was taken")
	}
}

// TestImpossibleSize: an impossible size is an error, and leaves no open descriptor. A size
// that is only too large must not be tried: the caller has to know how much memory the machine
// has.
func TestImpossibleSize(t *testing.T) {
	before := descriptors(t)
	if fd, _, err := Create("test", -1); err == nil || fd != -1 {
		t.Errorf("descriptor %d, %v", fd, err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestGeometry(t *testing.T) {
	for g, ok := range map[Geometry]bool{
		DefaultGeometry:                true,
		{16, 16, pageBytes}:            true,
		{1 << 16, 1 << 16, 1 << 30}:    true,
		{8, 16, pageBytes}:             false,
		{16, 8, pageBytes}:             false,
		{1 << 17, 16, pageBytes}:       false,
		{16, 1 << 17, pageBytes}:       false,
		{17, 16, pageBytes}:            false,
		{16, 24, pageBytes}:            false,
		{0, 16, pageBytes}:             false,
		{-16, 16, pageBytes}:           false,
		{16, 16, pageBytes - 1}:        false,
		{16, 16, 1<<30 + 1}:            false,
		{16, 16, -1}:                   false,
		{math.MinInt, 16, pageBytes}:   false,
		{16, math.MinInt, math.MinInt}: false,
	} {
		if err := g.Validate(); (err == nil) != ok {
			t.Errorf("%+v: %v", g, err)
		}
		if !ok {
			if _, err := Format(make([]byte, 1<<16), g, 0); err == nil {
				t.Errorf("%+v was laid out", g)
			}
		}
	}
	if _, err := Format(make([]byte, small.Bytes()-1), small, 0); err == nil {
		t.Error("a segment was laid out in too little memory")
	}
}

// TestContradictions: a header that does not match its memory is refused.
func TestContradictions(t *testing.T) {
	_, mem := create(t, small.Bytes())
	for what, c := range map[string]struct {
		off  int
		v    uint64
		want string
	}{
		"magic":             {offMagic, 0, "not an Outrigger segment"},
		"version":           {offABI, 2, "layout version 2"},
		"submit entries":    {offSubmit, 1 << 16, "ring of"},
		"complete entries":  {offComplete, 63, "ring of 63"},
		"more entries":      {offComplete, 1 << 15, "do not fit"},
		"slab elsewhere":    {offSlabOff, 4096, "do not fit"},
		"slab far away":     {offSlabOff, math.MaxUint64, "do not fit"},
		"larger slab":       {offSlabLen, 1 << 29, "do not fit"},
		"slab of 2^63":      {offSlabLen, 1 << 63, "slab of"},
		"slab of -1":        {offSlabLen, math.MaxUint64, "slab of"},
		"slab of no length": {offSlabLen, 0, "slab of 0"},
	} {
		if _, err := Format(mem, small, 7); err != nil {
			t.Fatal(err)
		}
		if c.off == offMagic || c.off >= offSlabOff {
			put64(mem[c.off:], c.v)
		} else if c.off == offSubmit {
			put32(mem[c.off:], uint32(c.v)+1)
		} else {
			put32(mem[c.off:], uint32(c.v))
		}
		if _, err := Read(mem); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		clear(mem[:offRings])
	}
	for _, n := range []int{0, 1, offRings - 1} {
		if _, err := Read(mem[:n]); err == nil {
			t.Errorf("%d bytes were taken for a segment", n)
		}
	}
}

// FuzzRead: an untrusted header is refused, or all its parts are within the memory.
func FuzzRead(f *testing.F) {
	mem := make([]byte, small.Bytes())
	if _, err := Format(mem, small, 1); err != nil {
		f.Fatal(err)
	}
	f.Add(mem[:256])
	f.Add(make([]byte, 256))
	f.Fuzz(func(t *testing.T, raw []byte) {
		mem := aligned(small.Bytes())
		copy(mem[:offRings], raw)
		c, err := Read(mem)
		if err != nil {
			return
		}
		submit, n := c.SubmitRing()
		complete, k := c.CompleteRing()
		if len(submit) < ring.Bytes(n) || len(complete) < ring.Bytes(k) || offRings+len(submit)+len(complete)+len(c.Slab()) > len(mem) {
			t.Fatalf("rings of %d and %d bytes for %d and %d entries, slab of %d, in %d", len(submit), len(complete), n, k, len(c.Slab()), len(mem))
		}
		if _, err := ring.NewProducer(submit, n); err != nil {
			t.Fatal(err)
		}
		if len(c.Failure()) > failureMax {
			t.Fatalf("a failure of %d bytes", len(c.Failure()))
		}
	})
}

// TestSealLater: memory is sealed after both sides have mapped it. Both mappings still work,
// pages can be allocated, and no pages can be removed.
func TestSealLater(t *testing.T) {
	const size = 64 * pageBytes
	fd, mem, err := CreateToSeal("test", size, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(Unmap(mem), unix.Close(fd)) }() // as far as this test goes
	other, err := Open(fd, size)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Unmap(other) }() // as far as this test goes
	if n, err := Allocate(fd, 0, 4*pageBytes); n != 4*pageBytes || err != nil {
		t.Fatal(n, err)
	}
	for range 2 { // the other side may have added the seals
		if err := Seal(fd); err != nil {
			t.Fatal(err)
		}
	}
	for what, refused := range map[string]error{
		"a hole":        unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, pageBytes),
		"MADV_REMOVE":   unix.Madvise(other[:pageBytes], unix.MADV_REMOVE),
		"write":         func() error { _, err := unix.Pwrite(fd, []byte{1}, 0); return err }(),
		"a new mapping": func() error { _, err := Open(fd, size); return err }(),
	} {
		if !errors.Is(refused, unix.EPERM) {
			t.Errorf("%s: %v, want EPERM", what, refused)
		}
	}
	if n, err := Allocate(fd, 8*pageBytes, 4*pageBytes); n != 4*pageBytes || err != nil {
		t.Errorf("allocating %d: %v", n, err)
	}
	mem[8*pageBytes], other[9*pageBytes] = 3, 4
	if other[8*pageBytes] != 3 || mem[9*pageBytes] != 4 {
		t.Error("one side does not see what the other wrote")
	}
	if read, err := OpenToRead(fd, 0, size); err != nil || read[8*pageBytes] != 3 {
		t.Errorf("a mapping to be read: %v", err)
	} else if err := Unmap(read); err != nil {
		t.Error(err)
	}
}

// TestSealedInAnotherWay: memory that lacks a seal and accepts no more seals is refused.
func TestSealedInAnotherWay(t *testing.T) {
	fd, mem, err := CreateToSeal("test", pageBytes, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(Unmap(mem), unix.Close(fd)) }() // as far as this test goes
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL); err != nil {
		t.Fatal(err)
	}
	if err := Seal(fd); err == nil || !strings.Contains(err.Error(), "has the seals 0x7, want 0x17") {
		t.Errorf("%v", err)
	}
}
