package core

import (
	"encoding/binary"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/carriage"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// overtaking is a link whose casts are in place at once, and whose writes are when they
// end: what is cast beside them overtakes them.
type overtaking struct {
	*lone
	ring  []byte // the peer's
	full  bool   // no cast is taken
	casts int
}

// Cast implements link.Caster.
func (o *overtaking) Cast(_ link.Peer, data []byte, dst link.Key, _ uint64) bool {
	if o.full {
		return false
	}
	o.casts++
	copy(o.ring[dst.Addr:], data)
	return true
}

// end puts all writes in place, in their order, and tells of their ends.
func (o *overtaking) end(c *Core) {
	list := o.writes
	o.writes = nil
	for _, w := range list {
		copy(o.ring[w.key.Addr:], w.data)
		c.RemoteDone(1, 1, w.token, nil)
	}
}

// TestNoCastBesideWrites: while a write to a ring is under way nothing is cast into it. The
// words of the channel Basic would go back: how many slots are filled, and how many of the
// other ring are empty again.
func TestNoCastBesideWrites(t *testing.T) {
	o := &overtaking{lone: &lone{regions: map[link.Region][]byte{}}, ring: make([]byte, carriage.Basic.Bytes())}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2, Channel: carriage.Basic, Caster: o}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Attach(1, 0, 0, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	c.LinkUp(1, 1, looking64)
	body := make([]byte, wire.RingBytes)
	(&wire.RingBody{Key: 9, Slots: ringSlots, SlotBytes: ringSlot, Notice: 1}).Encode(body)
	for _, h := range []wire.Header{{Type: wire.Ack}, {Type: wire.Ring, Length: wire.RingBytes}} {
		h.Credit = c.peers[1].granted
		if err := c.Deliver(1, 1, &h, body[:h.Length]); err != nil {
			t.Fatal(err)
		}
	}
	send := func() {
		t.Helper()
		d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1, Class: shm.ClassInline}
		d.SetInline([]byte("hello"))
		if err := c.Submit(1, 0, &d); err != nil {
			t.Fatal(err)
		}
		c.Flush(1, o)
	}
	came := uint64(0)
	comes := func() {
		t.Helper()
		came++
		put(o.lone.ring(), came, came, []byte("x"))
		binary.LittleEndian.PutUint64(o.Bytes(c.ringMemory(&c.peers[1], false))[ringBytes:], came)
		if n := c.PollMemory(1); n != 1 {
			t.Fatalf("%d frames are taken", n)
		}
	}
	words := func(when string, filled, emptied uint64) {
		t.Helper()
		head, tail := binary.LittleEndian.Uint64(o.ring[ringBytes:]), binary.LittleEndian.Uint64(o.ring[ringBytes+8:])
		if head != filled || tail != emptied {
			t.Errorf("%s: the peer hears of %d slots filled and %d emptied, want %d and %d", when, head, tail, filled, emptied)
		}
	}
	send()
	comes()
	words("nothing is under way", 1, 1)
	if o.casts != 3 || len(o.writes) != 0 {
		t.Fatalf("%d casts and %d writes, and nothing is under way", o.casts, len(o.writes))
	}
	o.full = true
	send()
	comes()
	o.full = false
	send()
	comes()
	if o.casts != 3 {
		t.Errorf("%d are cast beside writes", o.casts-3)
	}
	o.end(c)
	words("all writes have ended", 3, 3)
	send()
	comes()
	if words("after that", 4, 4); o.casts != 6 {
		t.Errorf("%d are cast when all writes have ended", o.casts-3)
	}
}
