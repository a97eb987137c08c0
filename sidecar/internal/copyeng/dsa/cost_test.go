package dsa

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

// instantQueue completes each descriptor at once, and copies nothing: what is left is the cost of
// the channel itself.
type instantQueue struct {
	records *records
	status  func() uint32
}

func (q *instantQueue) Write(b []byte) (int, error) {
	base := q.records.address(0)
	for n := 0; n < len(b); n += descriptorBytes {
		record := uint64(0)
		for i := range 8 {
			record |= uint64(b[n+offCompletion+i]) << (8 * i)
		}
		atomic.StoreUint32(q.records.word(int(record-base)/recordStride), q.status())
	}
	return len(b), nil
}

func (q *instantQueue) Failed() bool { return false }
func (q *instantQueue) Close() error { return nil }

// openInstant opens a channel over a queue that completes each descriptor with a status.
func openInstant(t testing.TB, status func() uint32) *Channel {
	t.Helper()
	q := &instantQueue{status: status}
	c := openOver(t, q)
	q.records = &c.records
	return c
}

func succeed() uint32 { return statusSuccess }

// TestNoAllocation checks that a copy costs no allocation, with and without a fault.
func TestNoAllocation(t *testing.T) {
	n := 0
	c := openInstant(t, func() uint32 {
		if n++; n%3 == 0 {
			return statusPageFault
		}
		return statusSuccess
	})
	dst, src := aligned(64<<10), aligned(64<<10)
	done := func(_ uint64, err error) {
		if err != nil {
			t.Error(err)
		}
	}
	if got := testing.AllocsPerRun(100, func() {
		for i := range uint64(8) {
			if !c.Submit(dst[i*8<<10:][:4099], src[:4099], i) {
				t.Error("refused")
			}
		}
		for c.Pending() > 0 {
			c.Poll(done)
		}
	}); got != 0 {
		t.Errorf("%v allocations for 8 copies", got)
	}
	if c.Stats().Faults == 0 || c.Stats().Fallbacks != 0 {
		t.Errorf("%+v", c.Stats())
	}
}

// TestBatches checks that copies which are submitted together need few system calls: the first is
// written at once, as the device is idle, and the others with the next Poll.
func TestBatches(t *testing.T) {
	c := openInstant(t, succeed)
	src := aligned(4096)
	for i := range uint64(10) {
		if !c.Submit(aligned(4096), src, i) {
			t.Fatal("refused")
		}
		if want := uint64(1); c.Stats().Writes != want {
			t.Errorf("%d writes after %d copies", c.Stats().Writes, i+1)
		}
	}
	finish(t, c, 10, mustEnd(t))
	if s := c.Stats(); s.Writes != 2 || s.Descriptors != 10 {
		t.Errorf("%+v", s)
	}
}

// BenchmarkChannel is the cost of Submit, Poll and the end of a copy without system call and copy,
// for copies that are submitted together.
func BenchmarkChannel(b *testing.B) {
	for _, together := range []int{1, 8} {
		b.Run(fmt.Sprintf("together=%d", together), func(b *testing.B) {
			c := openInstant(b, succeed)
			src, dst := aligned(64<<10), make([][]byte, together)
			for i := range dst {
				dst[i] = aligned(64 << 10)
			}
			done := func(uint64, error) {}
			for n := 0; b.Loop(); n++ {
				c.Submit(dst[n%together], src, 0)
				if n%together == together-1 {
					c.Poll(done)
				}
			}
		})
	}
}

// BenchmarkSimulatedDevice is the processor time of the engine's thread for a copy over the model:
// that of Submit, with the system call, and of the Poll that finds the end. The clock's own system
// calls are a part of it. The model's speed says nothing of a device's. Processor is the same copy
// by the processor.
func BenchmarkSimulatedDevice(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		dst, src := aligned(size), pattern(size, 1)
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			c := open(b, &setup{options: dsamodel.Options{Size: 16}})
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var engine time.Duration
			for b.Loop() {
				start := threadTime(b)
				c.Submit(dst, src, 0)
				engine += threadTime(b) - start
				for ended := false; !ended; {
					start = threadTime(b)
					if ended = c.Poll(func(uint64, error) {}) > 0; ended {
						engine += threadTime(b) - start
					} else {
						runtime.Gosched()
					}
				}
			}
			b.ReportMetric(float64(engine.Nanoseconds())/float64(b.N), "engine-ns/op")
		})
		b.Run(fmt.Sprintf("processor/size=%d", size), func(b *testing.B) {
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}

// threadTime returns the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
