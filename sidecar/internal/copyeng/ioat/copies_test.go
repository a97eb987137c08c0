package ioat

import (
	"bytes"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/copyengtest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/copyeng/ioat/ioatmodel"
)

// offloads makes Copies that offload to a channel of a model.
func offloads(t *testing.T, cfg ioatmodel.Config) (*copyeng.Copies, *Channel, *ioatmodel.Model) {
	t.Helper()
	m := ioatmodel.New(cfg)
	c, err := Open(m, Options{now: clock(m)})
	if err != nil {
		t.Fatal(err)
	}
	copies := copyengtest.Over(t, func() []*copyeng.Lane { return []*copyeng.Lane{{Channel: c}} })
	t.Cleanup(func() {
		if err := copies.Close(); err != nil {
			t.Error(err)
		}
	})
	return copies, c, m
}

// transfer copies in pieces.
func transfer(t *testing.T, copies *copyeng.Copies, dst, src []byte) {
	t.Helper()
	var x copyeng.Transfer
	var memory copyeng.Hold
	const piece = 64 << 10
	for at := 0; at < len(src); at += piece {
		n := min(piece, len(src)-at)
		for !copies.Submit(&x, &memory, uint64(at), dst[at:at+n], src[at:at+n]) {
			copies.Poll()
		}
	}
	for x.Pending() {
		copies.Poll()
	}
	if _, err := x.Failed(); err != nil || !bytes.Equal(dst[:len(src)], src) {
		t.Fatalf("%v, or other bytes", err)
	}
}

// twoArenas returns memory of two sessions, which the Copies know.
func twoArenas(copies *copyeng.Copies, n int) (a, b []byte) {
	a, b = make([]byte, n), make([]byte, n)
	for i := range a {
		a[i] = byte(i*7 + i>>13)
	}
	copies.AddMemory(a, nil)
	copies.AddMemory(b, nil)
	return a, b
}

// TestArenasAreMapped checks that the device copies between arenas, that only those blocks are
// mapped that are copied, and that nothing is mapped of a session that has ended.
func TestArenasAreMapped(t *testing.T) {
	copies, c, _ := offloads(t, ioatmodel.Config{})
	a, b := twoArenas(copies, 33<<20)
	for range 3 {
		transfer(t, copies, b[5<<20:], a[3<<20:8<<20]) // blocks 0 and 1 of a, and 1 and 2 of b
	}
	if s := copies.Stats(); s.Mapped != 4*4<<20 || s.Unmapped != 0 || s.Offloaded != 15<<20 {
		t.Errorf("%+v", s)
	}
	if s := c.Stats(); s.FallbackBytes != 0 || s.Bytes != 15<<20 {
		t.Errorf("the processor has copied: %+v", s)
	}
	transfer(t, copies, b[32<<20:], a[32<<20:]) // the last block is shorter
	if s := copies.Stats(); s.Mapped != 4*4<<20+2<<20 {
		t.Errorf("%+v", s)
	}
	for i, mem := range [][]byte{a, b} {
		if err := copies.DropMemory(mem); err != nil {
			t.Error(err)
		}
		if left := copies.Stats().Mapped; i == 1 && left != 0 || len(c.mem) > 3 {
			t.Errorf("%d bytes, %d regions are mapped", left, len(c.mem))
		}
	}
	if len(c.mem) != 0 {
		t.Errorf("%d regions are mapped for no session", len(c.mem))
	}
	if err := copies.DropMemory(a); err != nil { // again
		t.Error(err)
	}
}

// TestMemlockOfArenas checks that the processor copies what the limit of locked memory does not
// allow the device, and that the first cause is kept.
func TestMemlockOfArenas(t *testing.T) {
	copies, c, _ := offloads(t, ioatmodel.Config{LockMax: OwnBytes + 5<<20})
	a, b := twoArenas(copies, 16<<20)
	for range 2 {
		transfer(t, copies, b, a)
	}
	s := copies.Stats()
	if s.Mapped != 4<<20 || s.Unmapped != 28<<20 || !strings.Contains(s.MapCause, "cannot allocate memory") {
		t.Errorf("%+v", s)
	}
	if s := c.Stats(); s.FallbackBytes != 32<<20 {
		t.Errorf("%+v", s)
	}
}

// TestOnlyAllocatedBlocksAreMapped checks that a block is not mapped, which would allocate it,
// before all of it is allocated.
func TestOnlyAllocatedBlocksAreMapped(t *testing.T) {
	copies, c, _ := offloads(t, ioatmodel.Config{})
	a, b := make([]byte, 16<<20), make([]byte, 16<<20)
	end := uint64(4<<20 + 64<<10)
	copies.AddMemory(a, func(off uint64) (from, to uint64) {
		if off < end {
			return 0, end
		}
		return 0, 0
	})
	copies.AddMemory(b, nil)
	transfer(t, copies, b, a[4<<20:4<<20+64<<10])
	if s := copies.Stats(); s.Mapped != 4<<20 || c.Stats().FallbackBytes != 64<<10 {
		t.Errorf("%+v", s)
	}
	end = 8 << 20
	transfer(t, copies, b, a[4<<20:4<<20+64<<10])
	if s := copies.Stats(); s.Mapped != 8<<20 || c.Stats().FallbackBytes != 64<<10 {
		t.Errorf("after the piece has grown: %+v", s)
	}
}

// TestMeasuredOnMappedMemory checks that the device, and not the processor, is measured.
func TestMeasuredOnMappedMemory(t *testing.T) {
	m := ioatmodel.New(ioatmodel.Config{})
	c, err := Open(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	copyeng.Measure(c)
	if s := c.Stats(); s.Bytes == 0 || s.FallbackBytes != 0 || len(c.mem) != 0 {
		t.Errorf("%+v, %d regions are mapped", s, len(c.mem))
	}
}
