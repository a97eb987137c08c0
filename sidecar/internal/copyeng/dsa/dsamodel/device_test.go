package dsamodel

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// valid returns a descriptor that copies n bytes, and its completion record, which begins at record
// and is aligned.
func valid(dst, src []byte, n uint32) (b []byte, record *uint32) {
	mem := make([]uint64, 12)
	at := unsafe.Pointer(unsafe.SliceData(mem))
	for uintptr(at)%recordAlign != 0 {
		at = unsafe.Add(at, 8)
	}
	b = make([]byte, descriptorSize)
	le := binary.LittleEndian
	le.PutUint32(b[4:], opMemmove<<24|crav|rcr)
	le.PutUint64(b[8:], uint64(uintptr(at)))
	le.PutUint64(b[16:], uint64(uintptr(unsafe.Pointer(unsafe.SliceData(src)))))
	le.PutUint64(b[24:], uint64(uintptr(unsafe.Pointer(unsafe.SliceData(dst)))))
	le.PutUint32(b[32:], n)
	return b, (*uint32)(at)
}

// TestDescriptors gives the device descriptors that are wrong in one way each: it writes a status,
// and notes what no driver may submit.
func TestDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(b []byte)
		status  uint32
		mistake string
	}{
		"right":        {func([]byte) {}, success, ""},
		"opcode":       {func(b []byte) { b[7] = 4 }, badOpcode, ""},
		"flags":        {func(b []byte) { b[4] |= 2 }, badFlags, ""},
		"size 0":       {func(b []byte) { b[32], b[33] = 0, 0 }, badSize, ""},
		"size":         {func(b []byte) { b[33] = 0x11 }, badSize, ""},
		"other fields": {func(b []byte) { b[40] = 1 }, success, "byte 40"},
		"address":      {func(b []byte) { b[8] += 8 }, 0, "completion address"},
		"overlap":      {func(b []byte) { copy(b[24:32], b[16:24]) }, success, "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			d, fd, err := New(Options{Size: 4, TransferMax: 4096})
			if err != nil {
				t.Fatal(err)
			}
			dst, src := make([]byte, 8192), make([]byte, 8192)
			b, record := valid(dst, src, 4096)
			c.change(b)
			write(t, fd, b)
			d.Drain()
			if got := atomic.LoadUint32(record); got != c.status {
				t.Errorf("status %#x, want %#x", got, c.status)
			}
			if got := strings.Join(d.Counts().Mistakes, "\n"); !strings.Contains(got, c.mistake) || (got != "") != (c.mistake != "") {
				t.Errorf("mistakes %q, want %q", got, c.mistake)
			}
		})
	}
}

// TestQueueIsJudged gives a dedicated queue more than it has entries for, and descriptors that have
// a record or memory in common.
func TestQueueIsJudged(t *testing.T) {
	late := func(int, Descriptor) Fault { return Fault{Delay: time.Hour} }
	d, fd, err := New(Options{Size: 3, Dedicated: true, Fault: late})
	if err != nil {
		t.Fatal(err)
	}
	dst, src := make([]byte, 4096), make([]byte, 4096)
	first, _ := valid(dst, src, 64)
	second, _ := valid(dst[32:], src, 64)
	third := append([]byte(nil), first...)
	fourth, record := valid(dst[2048:], src, 64)
	write(t, fd, append(append(append(first, second...), third...), fourth...))
	d.Drain()
	c := d.Counts()
	if got := strings.Join(c.Mistakes, "\n"); !strings.Contains(got, "order matters") || !strings.Contains(got, "one completion record") {
		t.Errorf("mistakes %q", got)
	}
	if c.Lost != 1 || c.Descriptors != 3 || atomic.LoadUint32(record) != 0 {
		t.Errorf("%+v, status %d", c, *record)
	}
}

func write(t *testing.T, fd int, b []byte) {
	t.Helper()
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.Write(fd, b); err != nil {
		t.Fatal(err)
	}
}
