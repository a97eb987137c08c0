package core

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// overtaking is a link whose casts are in place at once, and whose writes are in place only
// when they end: a notification that is cast meanwhile overtakes them.
type overtaking struct {
	*lone
	ring   []byte // the peer's ring
	full   int    // the number of casts that the link refuses
	broken bool   // the link refuses writes, too
	casts  int
}

// Cast implements link.Caster.
func (o *overtaking) Cast(_ link.Peer, data []byte, dst link.Key, _ uint64) bool {
	if o.full > 0 {
		o.full--
		return false
	}
	o.casts++
	copy(o.ring[dst.Addr:], data)
	return true
}

func (o *overtaking) Write(peer link.Peer, token uint64, src link.Ref, dst link.Key, notify uint64) error {
	if o.broken {
		return link.ErrBroken
	}
	return o.lone.Write(peer, token, src, dst, notify)
}

// end puts all writes in place, in their order, and reports their ends.
func (o *overtaking) end(c *Core) {
	list := o.writes
	o.writes = nil
	for _, w := range list {
		copy(o.ring[w.key.Addr:], w.data)
		c.RemoteDone(1, 1, w.token, nil)
	}
}

// basic returns a core with both rings of the channel Basic open. send sends a message, comes
// lets one arrive through the ring, and words checks the numbers of slots that the peer is
// notified of.
func basic(t *testing.T) (c *Core, o *overtaking, send, comes func(), words func(when string, filled, emptied uint64)) {
	t.Helper()
	o = &overtaking{lone: &lone{regions: map[link.Region][]byte{}}, ring: make([]byte, eagerring.Basic.Bytes())}
	var err error
	c, err = New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2, Channel: eagerring.Basic, Caster: o}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	c.LinkUp(1, 1, looking64)
	body := make([]byte, wire.RingBytes)
	(&wire.RingBody{Key: 9, Slots: ringSlots, SlotBytes: ringSlot, Notice: 1}).Encode(body)
	for _, h := range []wire.Header{{Type: wire.Ack}, {Type: wire.Ring, Length: wire.RingBytes}} {
		h.Credit = c.peers[1].Credit().Granted()
		if err := c.Deliver(1, 1, &h, body[:h.Length]); err != nil {
			t.Fatal(err)
		}
	}
	send = func() {
		t.Helper()
		d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1, Class: shm.ClassInline}
		d.SetInline([]byte("hello"))
		if err := c.Submit(1, 0, &d); err != nil {
			t.Fatal(err)
		}
		c.Flush(1, o)
	}
	came := uint64(0)
	comes = func() {
		t.Helper()
		came++
		put(o.lone.ring(), came, came, []byte("x"))
		binary.LittleEndian.PutUint64(o.Bytes(link.Ref{Region: RegionRings, Len: eagerring.Basic.Bytes()})[ringBytes:], came)
		if n := c.PollMemory(1); n != 1 {
			t.Fatalf("%d frames are taken", n)
		}
		if b := o.lone.ring()[:ringSlots*ringSlot]; bytes.Count(b, []byte{0}) != len(b) {
			t.Errorf("message %d is taken, and a slot has bytes of it still", came)
		}
	}
	words = func(when string, filled, emptied uint64) {
		t.Helper()
		head, tail := binary.LittleEndian.Uint64(o.ring[ringBytes:]), binary.LittleEndian.Uint64(o.ring[ringBytes+8:])
		if head != filled || tail != emptied {
			t.Errorf("%s: the peer hears of %d slots filled and %d emptied, want %d and %d", when, head, tail, filled, emptied)
		}
	}
	return c, o, send, comes, words
}

// TestNoCastBesideWrites checks that nothing is cast into a ring while a write to it is in
// flight. Otherwise two counters of the channel Basic could go back: the number of slots that
// are filled, and the number of slots of the other ring that are empty again.
func TestNoCastBesideWrites(t *testing.T) {
	c, o, send, comes, words := basic(t)
	send()
	comes()
	words("nothing is under way", 1, 1)
	if o.casts != 3 || len(o.writes) != 0 {
		t.Fatalf("%d casts and %d writes, and nothing is under way", o.casts, len(o.writes))
	}
	o.full = 3
	send()
	comes()
	o.full = 0
	send()
	comes()
	if o.casts != 3 {
		t.Errorf("%d are cast while writes are open", o.casts-3)
	}
	o.end(c)
	words("all writes have ended", 3, 3)
	send()
	comes()
	if words("after that", 4, 4); o.casts != 6 {
		t.Errorf("%d are cast when all writes have ended", o.casts-3)
	}
	o.full = 1 // the cast of the slot is refused: its counter must not arrive first
	if send(); o.casts != 6 || len(o.writes) != 2 {
		t.Errorf("%d are cast behind a write of the same frame, which has %d", o.casts-6, len(o.writes))
	}
}

// TestRefusedWrites checks that a ring is given up when a write to it is refused, and that no
// frame waits for it: frames go by the connection.
func TestRefusedWrites(t *testing.T) {
	for what, first := range map[string]func(send, comes func()){
		"a frame":                     func(send, _ func()) { send() },
		"the word about what is free": func(_, comes func()) { comes() },
	} {
		c, o, send, comes, _ := basic(t)
		o.full, o.broken = 1, true
		first(send, comes)
		o.frames = o.frames[:0]
		send()
		if n := len(o.writes); n != 0 || c.peers[1].Out().UnpostedFrames() != 0 {
			t.Errorf("%s: %d writes are under way, %d frames wait", what, n, c.peers[1].Out().UnpostedFrames())
		}
	}
}
