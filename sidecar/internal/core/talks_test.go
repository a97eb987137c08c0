package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestTalks compares a row with a map.
func TestTalks(t *testing.T) {
	var row talks
	want := map[uint32]Traffic{}
	draw := rand.New(rand.NewPCG(1, 2))
	var rest Traffic
	for range 20_000 {
		dst, n := draw.Uint32N(8000), draw.Uint64N(100)
		if _, known := want[dst]; !known && len(want) == talksMax {
			rest.Add(n)
		} else {
			k := want[dst]
			k.Add(n)
			want[dst] = k
		}
		row.add(dst, n)
	}
	if row.rest != rest || rest.Messages == 0 {
		t.Errorf("beyond the bound: %v, want %v", row.rest, rest)
	}
	for _, k := range row.cells {
		if k.Messages != 0 && want[k.Dst] != k.Traffic {
			t.Errorf("to %d: %v, want %v", k.Dst, k.Traffic, want[k.Dst])
		}
		if k.Messages != 0 {
			delete(want, k.Dst)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d partners are missing", len(want))
	}
	if n := testing.AllocsPerRun(100, func() { row.add(7, 1) }); n != 0 {
		t.Errorf("%v allocations for a known partner", n)
	}
}

// TestOwnOutboxShrinks: the memory of a burst comes back (Outbox.Shrink), also of what the ranks here have sent each other,
// to which no heartbeat goes.
func TestOwnOutboxShrinks(t *testing.T) {
	x := newCrowd(t)
	c := x.core
	c.LinkUp(1, 0, link.Caps{Name: "local"})
	for range 5000 {
		d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1}
		d.SetInline(make([]byte, 8))
		x.submit(0, d)
	}
	for c.Flush(2, x) {
	}
	if p := &c.peers[0]; !p.Out().Large() {
		t.Fatal("there is room for few frames: the test shows nothing")
	}
	if next := c.Tick(int64(time.Second)); next == 0 {
		t.Error("nobody will look at the outbox again")
	}
	for i := range x.frames {
		f := &x.frames[i]
		if err := c.Deliver(2, 0, &f.Head, f.Inline[:f.Head.Length]); err != nil {
			t.Fatal(err)
		}
	}
	for s := range int64(3) {
		c.Tick((s + 2) * int64(time.Second))
	}
	if p := &c.peers[0]; p.Out().Large() {
		t.Error("room for many frames is kept")
	}
}
