package copyeng_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestChannels checks the contract of Channel: bytes, order, bound and end.
func TestChannels(t *testing.T) {
	for name, open := range map[string]func() copyeng.Channel{
		"cpu":    func() copyeng.Channel { return new(copyeng.CPU) },
		"helper": func() copyeng.Channel { return copyeng.NewHelper(-1) },
	} {
		t.Run(name, func(t *testing.T) {
			ch := open()
			if ch.Name() != name {
				t.Errorf("its name is %q", ch.Name())
			}
			src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
			for i := range src {
				src[i] = byte(i*7 + i>>10)
			}
			const n, rounds = 1000, 20_000
			var given, ended uint64
			full := false
			for ended < rounds {
				for at := int(given%1000) * n; given < rounds && ch.Submit(dst[at:], src[at:at+n], given); at = int(given%1000) * n {
					given++
				}
				full = full || given < rounds && ch.Pending() == int(given-ended)
				ch.Poll(func(token uint64, err error) {
					at := int(token%1000) * n
					if err != nil || token != ended || !bytes.Equal(dst[at:at+n], src[at:at+n]) {
						t.Fatalf("copy %d ended as number %d with %v, or copied other bytes", token, ended, err)
					}
					clear(dst[at : at+n])
					ended++
				})
			}
			if ch.Pending() != 0 || !full {
				t.Errorf("%d copies are pending at the end; the bound was reached: %v", ch.Pending(), full)
			}
			if err := ch.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestBlockedHelperIsWoken checks that a helper that has gone to sleep costs no CPU time, and
// makes the next copy.
func TestBlockedHelperIsWoken(t *testing.T) {
	h := copyeng.NewHelper(-1)
	defer h.Close()
	src, dst := []byte{1}, make([]byte, 1)
	for range 20 {
		time.Sleep(2 * time.Millisecond) // it blocks after 50 us
		dst[0] = 0
		if !h.Submit(dst, src, 1) {
			t.Fatal("an idle helper is full")
		}
		for h.Poll(func(uint64, error) {}) == 0 {
			runtime.Gosched()
		}
		if dst[0] != 1 {
			t.Fatal("the byte is not copied")
		}
	}
	time.Sleep(50 * time.Millisecond)
	before := h.CPU()
	time.Sleep(200 * time.Millisecond)
	if after := h.CPU(); before == 0 || after-before > 50*time.Millisecond {
		t.Errorf("an idle helper has used %v in 200 ms, or has never slept (%v)", after-before, before)
	}
}

// TestFaultIsAnError checks that memory whose file was truncated fails its copy alone.
func TestFaultIsAnError(t *testing.T) {
	const n = 1 << 16
	fd, err := unix.MemfdCreate("copyeng", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, n); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, n/2); err != nil {
		t.Fatal(err)
	}
	h := copyeng.NewHelper(-1)
	buf := make([]byte, n)
	for token, c := range [][2][]byte{{buf, mem}, {mem, buf}, {buf[:n/2], mem[:n/2]}} {
		if !h.Submit(c[0], c[1], uint64(token)) {
			t.Fatal("an idle helper is full")
		}
	}
	var errs []error
	for len(errs) < 3 {
		h.Poll(func(_ uint64, err error) { errs = append(errs, err) })
	}
	if !errors.Is(errs[0], copyeng.ErrFault) || !errors.Is(errs[1], copyeng.ErrFault) || errs[2] != nil {
		t.Errorf("copies from and into truncated memory, and of the rest, ended with %v", errs)
	}
	if err := errors.Join(h.Close(), unix.Munmap(mem), unix.Close(fd)); err != nil {
		t.Error(err)
	}
}

// TestAlert checks that an engine that sleeps on the bell is woken when half of its copies
// have ended, each time.
func TestAlert(t *testing.T) {
	bell, err := wake.NewDoorbell()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(bell) }() // the helper has ended
	c := copyeng.New(copyeng.Config{Kind: "helper", Threshold: copyengtest.Least, Open: func(fd int) ([]*copyeng.Lane, error) {
		h := copyeng.NewHelper(fd)
		return []*copyeng.Lane{{Channel: h, Alert: h.Alert}}, nil
	}})
	c.SetBell(bell)
	for !c.Takes(copyengtest.Least) {
		runtime.Gosched()
	}
	src, dst := make([]byte, 1<<20), make([]byte, 1<<20)
	var tr copyeng.Transfer
	var memory copyeng.Hold
	sleeps := 0
	for range 2000 {
		for c.Room() {
			if !c.Submit(&tr, &memory, 0, dst, src) {
				t.Fatal("there is room, and no piece is accepted")
			}
		}
		for tr.Pending() {
			if !c.Arm() {
				sleeps++
				p := []unix.PollFd{{Fd: int32(bell), Events: unix.POLLIN}}
				if n, err := unix.Poll(p, 60_000); err == nil && n == 0 {
					t.Fatal("the bell is not rung")
				}
				var b [8]byte
				_, _ = unix.Read(bell, b[:]) // EAGAIN: a ring of an earlier sleep was read already
			}
			c.Disarm()
			c.Poll()
		}
	}
	if memory.Pending() || sleeps == 0 {
		t.Errorf("the engine slept %d times", sleeps)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestNotArmed checks that the engine does not sleep on a channel that cannot ring.
func TestNotArmed(t *testing.T) {
	c := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: new(copyeng.CPU)}} })
	defer c.Close()
	var tr copyeng.Transfer
	var memory copyeng.Hold
	if c.Arm() {
		t.Error("nothing is pending, and the engine may not sleep")
	}
	if !c.Submit(&tr, &memory, 0, make([]byte, 1), []byte{1}) || !c.Arm() {
		t.Error("a copy is pending, and the engine may sleep")
	}
	if c.Wait(&memory); tr.Pending() || !c.Arm() || c.Arm() {
		t.Error("the links do not look once after a wait")
	}
}

// TestNoAllocations checks that a piece costs none.
func TestNoAllocations(t *testing.T) {
	c := copyengtest.Copies(t, 1)
	defer c.Close()
	var tr copyeng.Transfer
	var memory copyeng.Hold
	src, dst := make([]byte, 100), make([]byte, 100)
	round := func() {
		c.Submit(&tr, &memory, 0, dst, src)
		c.Wait(&memory)
	}
	round()
	// testing.AllocsPerRun would leave both threads one turn in Go's scheduler.
	const rounds = 10_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > rounds/100 { // the runtime may make some
		t.Errorf("%d allocations for %d pieces", n, rounds)
	}
}

// BenchmarkSubmit is the time of the engine's thread for a piece, and BenchmarkInline that of
// a copy of its own.
func BenchmarkSubmit(b *testing.B) {
	c := copyengtest.Copies(b, 1)
	defer c.Close()
	var tr copyeng.Transfer
	var memory copyeng.Hold
	src, dst := make([]byte, 64<<10), make([]byte, 64<<10)
	b.SetBytes(64 << 10)
	var busy time.Duration
	for b.Loop() {
		begun := time.Now()
		c.Submit(&tr, &memory, 0, dst, src)
		busy += time.Since(begun)
		c.Wait(&memory)
	}
	b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N), "ns-submit/op")
}

func BenchmarkInline(b *testing.B) {
	src, dst := make([]byte, 64<<10), make([]byte, 64<<10)
	b.SetBytes(64 << 10)
	for b.Loop() {
		copy(dst, src)
	}
}
