package dsa

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

// TestCopies makes copies of odd sizes and alignments with random faults over queues of all kinds.
// 4 times 12,500 are 50,000.
func TestCopies(t *testing.T) {
	for name, s := range map[string]*setup{
		"shared":           {options: dsamodel.Options{Size: 16, Window: 1}},
		"dedicated":        {options: dsamodel.Options{Size: 4, Window: 4, Dedicated: true}},
		"shared, small":    {options: dsamodel.Options{Size: 2, Window: 2, SendBuffer: 1, TransferMax: 4096}, most: 3},
		"mapped, no order": {options: dsamodel.Options{Size: 64, Window: 16, TransferMax: 1 << 20}, mapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, faults := range []bool{false, true} {
				s := *s
				if faults {
					s.options.Fault = randomFaults(1)
				}
				manyCopies(t, &s, 6250)
			}
		})
	}
}

// randomFaults returns faults of all kinds for a tenth of the descriptors. Statuses that end the
// channel if they come in a row are rarer.
func randomFaults(seed uint64) func(int, dsamodel.Descriptor) dsamodel.Fault {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(_ int, d dsamodel.Descriptor) dsamodel.Fault {
		after := r.Uint32N(d.Size + 1)
		switch r.IntN(50) {
		case 0, 1:
			return dsamodel.Fault{Status: 0x03, After: after}
		case 2, 3:
			return dsamodel.Fault{Status: 0x83, After: after, Backward: r.IntN(2) == 0}
		case 4:
			return dsamodel.Fault{Status: []uint8{0x10, 0x11, 0x13, 0x1a, 0x04, 0x22}[r.IntN(6)], After: after}
		case 5:
			return dsamodel.Fault{Delay: time.Duration(r.IntN(100)) * time.Microsecond}
		}
		return dsamodel.Fault{}
	}
}

// area is where a copy goes to. Bytes around the copy must not change.
type area struct {
	mem  []byte
	from int
	src  []byte
}

const guardByte = 0xa5

// check compares the copy and the bytes around it.
func (a *area) check(t testing.TB, token uint64) {
	t.Helper()
	to := a.from + len(a.src)
	if !bytes.Equal(a.mem[a.from:to], a.src) {
		t.Fatalf("copy %d of %d bytes to offset %d is wrong", token, len(a.src), a.from)
	}
	for _, b := range [][]byte{a.mem[:a.from], a.mem[to:min(len(a.mem), to+256)]} {
		if bytes.Count(b, []byte{guardByte}) != len(b) {
			t.Fatalf("copy %d of %d bytes to offset %d changed bytes around it", token, len(a.src), a.from)
		}
	}
	fill(a.mem[a.from:to])
}

// fill writes guard bytes.
func fill(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = guardByte
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// oddSize returns a size: mostly some KiB, sometimes little or much.
func oddSize(r *rand.Rand, most int) int {
	switch r.IntN(20) {
	case 0:
		return r.IntN(130)
	case 1:
		return r.IntN(most)
	}
	return r.IntN(5000)
}

func manyCopies(t *testing.T, s *setup, n int) {
	t.Helper()
	const most, areas = 100_000, 64
	r := rand.New(rand.NewPCG(7, uint64(n)))
	mem := make([]byte, areas*(most+512))
	if s.mapped { // the race detector does not see mapped memory, as it does not see mapped records
		mem = mapMemory(t, len(mem))
	}
	fill(mem)
	source, list := pattern(most*2, 3), make([]area, areas)
	if s.mapped {
		source = append(mapMemory(t, len(source))[:0], source...)
	}
	c := open(t, s) // it is closed before the memory is unmapped
	for i := range list {
		list[i].mem = mem[i*(most+512) : (i+1)*(most+512)]
	}
	ended := uint64(0)
	done := func(token uint64, err error) {
		if token != ended || err != nil {
			t.Fatalf("copy %d ended with %v, want %d", token, err, ended)
		}
		ended++
		list[token%areas].check(t, token)
	}
	for token := uint64(0); ended < uint64(n); {
		for k := r.IntN(24); k > 0 && token < uint64(n) && token-ended < areas; k-- {
			a, size := &list[token%areas], oddSize(r, most)
			at := r.IntN(len(source) - size)
			a.from, a.src = 64+r.IntN(256), source[at:at+size]
			if !c.Submit(a.mem[a.from:], a.src, token) {
				break
			}
			token++
		}
		if c.Poll(done) == 0 {
			runtime.Gosched()
		}
	}
	if s := c.Stats(); c.Err() != nil || s.Copies != uint64(n) || s.DeviceBytes == 0 || c.Pending() != 0 {
		t.Errorf("%+v, %v", s, c.Err())
	}
}

// TestTouchIsBounded checks how much memory one call makes resident.
func TestTouchIsBounded(t *testing.T) {
	const n = 32 << 20
	dst, src := mapMemory(t, n), mapMemory(t, n)
	c := openInstant(t, succeed)
	if !c.Submit(dst, src, 0) {
		t.Fatal("refused")
	}
	calls := 1
	for ended := false; !ended; calls++ {
		got := residentBytes(t, dst) + residentBytes(t, src)
		if most := calls * (turnBytes + 2*pieceMax); got > most {
			t.Fatalf("%d bytes are resident after %d calls, want at most %d", got, calls, most)
		}
		ended = c.Poll(func(uint64, error) {}) > 0
	}
	if calls < 5 {
		t.Errorf("%d calls for a copy of %d bytes", calls, n)
	}
}

// residentBytes returns the bytes of mapped memory that are resident.
func residentBytes(t *testing.T, mem []byte) int {
	t.Helper()
	pages := make([]byte, len(mem)/pageBytes)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, addressOf(mem), uintptr(len(mem)), addressOf(pages))
	if e != 0 {
		t.Fatal(e)
	}
	return bytes.Count(pages, []byte{1}) * pageBytes
}

// mapMemory maps memory that is not resident.
func mapMemory(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// TestChains submits copies of which each depends on others, and compares the memory with that of
// copies in order.
func TestChains(t *testing.T) {
	s := &setup{options: dsamodel.Options{Window: 16, Fault: randomFaults(5), TransferMax: 4096}}
	c := open(t, s)
	const n = 1 << 16
	mem := pattern(n, 9)
	want := bytes.Clone(mem)
	r := rand.New(rand.NewPCG(11, 0))
	ended := 0
	done := func(token uint64, err error) {
		if token != uint64(ended) || err != nil {
			t.Errorf("copy %d ended with %v, want %d", token, err, ended)
		}
		ended++
	}
	const copies = 2000
	for token := range uint64(copies) {
		size := r.IntN(12_000)
		from, to := r.IntN(n-size), r.IntN(n-size)
		copy(want[to:to+size], want[from:from+size])
		for !c.Submit(mem[to:], mem[from:from+size], token) {
			c.Poll(done)
			runtime.Gosched()
		}
	}
	finish(t, c, copies-ended, done)
	if !bytes.Equal(mem, want) {
		t.Error("the memory is not that of copies in order")
	}
	if c.Stats().DeviceBytes == 0 {
		t.Errorf("%+v", c.Stats())
	}
}

// TestOverlap copies a range to one that overlaps it, of more bytes than the processor copies in a
// call.
func TestOverlap(t *testing.T) {
	for name, at := range map[string]struct{ dst, src int }{"up": {1000, 0}, "down": {0, 1000}, "same": {5, 5}} {
		t.Run(name, func(t *testing.T) {
			c := open(t, &setup{})
			const n = 3 * turnBytes
			mem := pattern(n+1000, 1)
			want := bytes.Clone(mem)
			copy(want[at.dst:], want[at.src:at.src+n])
			if !c.Submit(mem[at.dst:], mem[at.src:at.src+n], 0) {
				t.Fatal("refused")
			}
			finish(t, c, 1, mustEnd(t))
			if !bytes.Equal(mem, want) {
				t.Error("wrong bytes")
			}
		})
	}
}

// TestResident checks that memory without pages is made resident before a copy, once, and that a
// page which has been given back since is made resident after its fault.
func TestResident(t *testing.T) {
	s := &setup{options: dsamodel.Options{Pages: true}, mapped: true}
	dst, src := mapMemory(t, 1<<20), mapMemory(t, 1<<20)
	c := open(t, s)
	for i := range 3 {
		if i == 2 {
			for _, mem := range [][]byte{dst[256<<10:], src[512<<10:]} {
				if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
					t.Fatal(err)
				}
			}
		}
		copy(src, pattern(512<<10, uint64(i)))
		if !c.Submit(dst, src, 0) {
			t.Fatal("refused")
		}
		finish(t, c, 1, mustEnd(t))
		if !bytes.Equal(dst, src) {
			t.Fatalf("copy %d is wrong", i)
		}
		if faults := c.Stats().Faults; i < 2 && faults != 0 || i == 2 && faults == 0 {
			t.Errorf("%d faults after copy %d", faults, i)
		}
	}
	if s := c.Stats(); s.Fallbacks != 0 {
		t.Errorf("%+v", s)
	}
}
