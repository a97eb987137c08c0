package dsa

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/devplugin/sysfstest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/dsa/dsamodel"
)

var _ copyeng.Channel = (*Channel)(nil)

// modelQueue is the queue of a model. Its calls are those of the device file, except that Close
// waits for the model, where the driver's release waits for the device.
type modelQueue struct {
	File
	device *dsamodel.Device
	most   int // descriptors that a write takes; 0: all
}

func (q *modelQueue) Write(b []byte) (int, error) {
	if q.most > 0 {
		b = b[:min(len(b), q.most*descriptorBytes)]
	}
	return q.File.Write(b)
}

func (q *modelQueue) Close() error {
	q.device.Drain()
	return q.File.Close()
}

// setup is a channel over a model, and how both are made.
type setup struct {
	options dsamodel.Options
	cfg     Config
	most    int // descriptors that a write takes; 0: all
	mapped  bool

	device *dsamodel.Device
	queue  *modelQueue
}

// heapRecords is memory for completion records, aligned as mapped memory is to lines.
func heapRecords(n int) ([]byte, error) {
	mem := make([]byte, (n+1)*recordStride)
	skip := int(-addressOf(mem) & (recordStride - 1))
	return mem[skip : skip+n*recordStride], nil
}

// tree returns a root whose sysfs describes the queue wq0.0.
func tree(t testing.TB, o dsamodel.Options) string {
	t.Helper()
	tree, a := sysfstest.New(t), &sysfstest.Accelerator{Function: sysfstest.Function{Address: "0000:6a:01.0"}}
	tree.DSA(a)
	mode := "shared"
	if o.Dedicated {
		mode = "dedicated"
	}
	tree.WorkQueue(a, 0, "user", mode)
	attributes := fmt.Sprintf("size = %d\n", o.Size)
	if o.TransferMax > 0 {
		attributes += fmt.Sprintf("max_transfer_size = %d\n", o.TransferMax)
	}
	tree.SetAll("sys/bus/dsa/devices/wq0.0", attributes)
	return tree.Root
}

// open opens a channel over a model. The test fails if the model has noted a mistake.
func open(t testing.TB, s *setup) *Channel {
	t.Helper()
	if s.options.Size == 0 {
		s.options.Size = 16
	}
	s.cfg.File, s.cfg.Root = "/dev/dsa/wq0.0", tree(t, s.options)
	if s.cfg.Late == 0 {
		s.cfg.Late = time.Hour // a machine that is busy is no dead device
	}
	if !s.mapped {
		s.cfg.records = heapRecords
	}
	s.cfg.Open = func(string) (Queue, error) {
		d, fd, err := dsamodel.New(s.options)
		s.device, s.queue = d, &modelQueue{File: File{FD: fd}, device: d, most: s.most}
		return s.queue, err
	}
	c, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close() // the tests of Close check its error
		counts := s.device.Counts()
		for _, m := range counts.Mistakes {
			t.Error("the device has been given", m)
		}
		if counts.Lost > 0 {
			t.Errorf("%d descriptors exceeded the dedicated queue", counts.Lost)
		}
	})
	return c
}

// finish polls until a number of copies has been reported.
func finish(t testing.TB, c *Channel, n int, done func(token uint64, err error)) {
	t.Helper()
	for n > 0 {
		k := c.Poll(done)
		if n -= k; k == 0 {
			runtime.Gosched()
		}
	}
}

// mustEnd is a done that expects tokens from 0 in order, without errors.
func mustEnd(t testing.TB) func(uint64, error) {
	next := uint64(0)
	return func(token uint64, err error) {
		if token != next || err != nil {
			t.Errorf("copy %d ended with %v, want copy %d without error", token, err, next)
		}
		next++
	}
}

// pattern returns bytes that differ at all distances that a wrong copy could have.
func pattern(n int, seed uint64) []byte {
	b, x := make([]byte, n), seed*0x9e3779b97f4a7c15+1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 24)
	}
	return b
}
