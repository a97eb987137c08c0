package core

import (
	"bytes"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// The tests of this file have a peer that uses its ring and its connection at once, in ways
// that no correct peer does.

// pipelined returns a core of pod 0 with a ring of the channel Pipeline open for pod 1. send
// writes a frame, or its first parts, into the ring as the peer; connect makes another
// connection, with another ring.
func pipelined(t *testing.T) (c *Core, ports *lone, send func(h *wire.Header, payload []byte, parts int), connect func()) {
	t.Helper()
	ports = &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2, Channel: eagerring.Pipeline}, ports)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	ring := ports.Bytes(link.Ref{Region: RegionRings, Len: eagerring.Pipeline.Bytes()})
	copied := make([]byte, len(ring))
	var to eagerring.Sender
	connect = func() {
		t.Helper()
		c.LinkUp(1, 1, placing)
		if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
			t.Fatal(err)
		}
		c.Flush(1, ports)
		body := ports.offered(t)
		if !to.Open(eagerring.Pipeline, placing, &body, 1, copied, nil) {
			t.Fatal("the offer is refused")
		}
	}
	connect()
	return c, ports, func(h *wire.Header, payload []byte, parts int) {
		t.Helper()
		writes := to.Put(&link.Frame{Head: *h}, payload, 0)
		if len(writes) < parts {
			t.Fatalf("%d writes", len(writes))
		}
		for _, w := range writes[:parts] {
			copy(ring[w.At:], copied[w.At:w.At+w.Len])
		}
	}, connect
}

// large returns a frame that takes two slots.
func large(seq uint64) (*wire.Header, []byte) {
	payload := bytes.Repeat([]byte{byte(seq)}, 20_000)
	return &wire.Header{Type: wire.Eager, Seq: seq, Src: 1, Tag: 5, A: uint64(len(payload)), Length: uint32(len(payload))}, payload
}

// TestRingDoesNotEndPlacing: while a link places the payload of a frame, the same frame in the
// ring does not complete it. Otherwise the memory could be reused before the link writes the
// rest.
func TestRingDoesNotEndPlacing(t *testing.T) {
	c, ports, send, connect := pipelined(t)
	h, payload := large(1)
	ref, err := c.Place(2, 1, h)
	if err != nil {
		t.Fatal(err)
	}
	send(h, payload, 2)
	p := &c.peers[1]
	if n := c.PollMemory(3); n != 0 || p.Arrived() != 0 {
		t.Fatalf("%d parts are taken, frame %d is whole, and the link holds the memory", n, p.Arrived())
	}
	h2, payload2 := large(2)
	send(h2, payload2, 2)
	copy(ports.Bytes(ref), payload)
	if err := c.Placed(4, 1); err != nil {
		t.Fatal(err)
	}
	c.PollMemory(5) // the first frame once more, and then the second
	if p.Arrived() != 2 || c.Stats().Parked != 2 {
		t.Errorf("%d frames, %d messages are there, want 2", p.Arrived(), c.Stats().Parked)
	}
	// A lost connection retains no memory.
	h3, payload3 := large(3)
	if _, err := c.Place(6, 1, h3); err != nil {
		t.Fatal(err)
	}
	c.LinkDown(7, 1, link.ErrBroken)
	connect()
	send(h3, payload3, 2)
	c.PollMemory(9)
	if p.Arrived() != 3 || c.Stats().Parked != 3 {
		t.Errorf("%d frames, %d messages are there, want 3", p.Arrived(), c.Stats().Parked)
	}
}

// TestRepeatedFrameEndsNothing checks that a frame of the connection that has arrived before
// does not complete a frame of which a part is in the ring.
func TestRepeatedFrameEndsNothing(t *testing.T) {
	c, _, send, _ := pipelined(t)
	h, payload := large(1)
	send(h, payload, 2)
	p := &c.peers[1]
	if n := c.PollMemory(2); n != 2 || p.Arrived() != 1 {
		t.Fatalf("%d parts, frame %d is whole", n, p.Arrived())
	}
	h2, payload2 := large(2)
	send(h2, payload2, 1)
	if n := c.PollMemory(3); n != 1 {
		t.Fatalf("%d parts", n)
	}
	if _, err := c.Place(4, 1, h); err != nil {
		t.Fatal(err)
	}
	if err := c.Placed(5, 1); err != nil {
		t.Fatal(err)
	}
	if p.Arrived() != 1 || !c.placing(p) {
		t.Errorf("frame %d is whole, of which a half has come", p.Arrived())
	}
}

// TestRingWithoutEnd checks that a peer that fills its ring as fast as it is emptied takes a
// bounded part of a turn.
func TestRingWithoutEnd(t *testing.T) {
	c, ports := ringed(t, placing)
	next := uint64(1)
	ports.noted = func(kind NoteKind) {
		if kind == NoteArrive {
			next++
			put(ports.ring(), next, next, []byte("again"))
		}
	}
	put(ports.ring(), 1, 1, []byte("first"))
	for turn := range 3 {
		if n := c.PollMemory(int64(turn + 2)); n != ringSlots {
			t.Errorf("%d frames in turn %d, want %d", n, turn, ringSlots)
		}
	}
}
