package core

import (
	"errors"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/eagerring"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// frequent is a link that gathers from buffers at low addresses.
type frequent struct{ asked int }

func (f *frequent) Gathers(_ link.Peer, ref link.Ref) bool {
	f.asked++
	return ref.Off < 1<<16
}

// TestGatheredSendsEndLater checks that a buffer that the link gathers from is not copied, so
// that its send ends when its frame is acknowledged. A send from any other buffer ends at
// once.
func TestGatheredSendsEndLater(t *testing.T) {
	g := &frequent{}
	x := gathering(t, g)
	x.regions[RegionPool] = make([]byte, 16<<20) // the pool has the copies
	send := func(req uint32, off, n uint64) *link.Frame {
		d := shm.Descriptor{Op: shm.OpSend, Req: req, Peer: 2, Class: shm.ClassArena}
		d.SetBody(off, n, 0, 0)
		x.submit(0, d)
		for x.core.Flush(3, x) {
		}
		return &x.frames[len(x.frames)-1]
	}
	arena := RegionFirst + 1
	f := send(1, 0, 4096)
	if !f.Gather || f.Payload.Region != arena || f.Head.Flags&wire.FlagAckNow == 0 || x.done != 0 {
		t.Errorf("gathered: %+v, %d sends have ended", f, x.done)
	}
	ack := wire.Header{Type: wire.Ack, Ack: f.Head.Seq, Credit: x.core.peers[1].Credit().Granted()}
	if err := x.core.Deliver(4, 1, &ack, nil); err != nil {
		t.Fatal(err)
	}
	if x.done != 1 {
		t.Errorf("%d sends have ended with the acknowledgement, want 1", x.done)
	}
	f = send(2, 1<<17, 4096)
	if f.Gather || f.Payload.Region == arena || x.done != 2 {
		t.Errorf("copied: %+v, %d sends have ended", f, x.done)
	}
	if send(3, 0, 8); g.asked != 2 {
		t.Errorf("the link was asked %d times, want 2: 8 bytes fit the frame", g.asked)
	}
}

// TestGatheredSendsEndDelivered: if the link reports delivery, a gathered send asks for no
// acknowledgement and ends when its frame was delivered; the acknowledgement does not end it
// again. After a break the frame is not sent again. A peer that asks for it violates the
// protocol, unless its next frame is an Abort because it has given this sidecar up.
func TestGatheredSendsEndDelivered(t *testing.T) {
	for name, c := range map[string]struct {
		ack    uint64
		next   wire.Type
		failed bool
	}{
		"has it":                  {ack: 2, next: wire.Ack},
		"asks again":              {ack: 1, next: wire.Ack, failed: true},
		"asks for all again":      {ack: 0, next: wire.Ack, failed: true},
		"has given its peer up":   {ack: 0, next: wire.Abort},
		"has it, and fails later": {ack: 2, next: wire.Abort},
	} {
		t.Run(name, func(t *testing.T) { endDelivered(t, c.ack, c.next, c.failed) })
	}
}

func endDelivered(t *testing.T, ack uint64, next wire.Type, failed bool) {
	x := gathering(t, &frequent{})
	p := &x.core.peers[1]
	caps := link.Caps{Name: "test", Delivers: true}
	x.core.LinkUp(1, 1, caps)
	if err := acknowledge(x.core, p, 0); err != nil {
		t.Fatal(err)
	}
	for req := range uint32(2) {
		d := shm.Descriptor{Op: shm.OpSend, Req: req, Peer: 2, Class: shm.ClassArena}
		d.SetBody(0, 4096, 0, 0)
		x.submit(0, d)
	}
	for x.core.Flush(3, x) {
	}
	f := &x.frames[len(x.frames)-1]
	if !f.Gather || f.Head.Flags&wire.FlagAckNow != 0 || x.done != 0 || f.Head.Seq != 2 {
		t.Fatalf("%+v, %d sends have ended", f, x.done)
	}
	x.core.Delivered(4, 1, 1)
	x.core.Delivered(4, 1, 2)
	x.core.Delivered(4, 1, 1) // a repetition
	if x.done != 2 || p.Out().Base() != 0 {
		t.Fatalf("%d sends have ended, frames up to %d are acknowledged", x.done, p.Out().Base())
	}
	posted := len(x.frames)
	x.core.LinkDown(5, 1, link.ErrBroken)
	x.core.LinkUp(6, 1, caps)
	err := x.core.Deliver(7, 1, &wire.Header{Type: wire.Ack, Ack: ack, Credit: p.Credit().Granted()}, nil)
	if err == nil {
		h := wire.Header{Type: next, Ack: ack, Credit: p.Credit().Granted()}
		if next == wire.Abort {
			h.Seq = p.Arrived() + 1
		}
		err = x.core.Deliver(8, 1, &h, nil)
	}
	if errors.Is(err, link.ErrProtocol) != failed || err != nil && !failed {
		t.Errorf("got %v, want an error: %v", err, failed)
	}
	for x.core.Flush(9, x) {
	}
	for _, f := range x.frames[posted:] {
		if f.Head.Type == wire.Eager {
			t.Errorf("frame %d is sent again", f.Head.Seq)
		}
	}
	if x.done != 2 && next != wire.Abort { // an Abort completes more: every rank is notified
		t.Errorf("%d sends have ended, want 2", x.done)
	}
}

// TestGivenUpOverABreak: a peer has given this sidecar up, and its connection breaks before it
// has sent the Abort. It may send the Abort on a later connection, and is not accused of a
// violation because it asks for frames that were delivered.
func TestGivenUpOverABreak(t *testing.T) {
	x := gathering(t, &frequent{})
	p := &x.core.peers[1]
	caps := link.Caps{Name: "test", Delivers: true}
	x.core.LinkUp(1, 1, caps)
	if err := acknowledge(x.core, p, 0); err != nil {
		t.Fatal(err)
	}
	d := shm.Descriptor{Op: shm.OpSend, Req: 0, Peer: 2, Class: shm.ClassArena}
	d.SetBody(0, 4096, 0, 0)
	x.submit(0, d)
	for x.core.Flush(3, x) {
	}
	x.core.Delivered(4, 1, 1)
	now := int64(5)
	for range 2 {
		x.core.LinkDown(now, 1, link.ErrBroken)
		x.core.LinkUp(now+1, 1, caps)
		if err := x.core.Deliver(now+2, 1, &wire.Header{Type: wire.Ack, Credit: p.Credit().Granted()}, nil); err != nil {
			t.Fatal(err)
		}
		now += 3
	}
	abort := wire.Header{Type: wire.Abort, Seq: p.Arrived() + 1, Credit: p.Credit().Granted(), Src: 3, A: 9}
	if err := x.core.Deliver(now, 1, &abort, nil); err != nil {
		t.Fatal(err)
	}
	if f := x.core.Failed(); f == nil || f.Rank != 3 || f.Code != 9 {
		t.Errorf("the job's failure is %v, want that of rank 3", f)
	}
}

// TestSendsByTheRingAskForTheirEnd checks that a gathered send whose frame goes by a ring asks
// for an acknowledgement, which ends it: no link reports the delivery of such a frame.
func TestSendsByTheRingAskForTheirEnd(t *testing.T) {
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2, Channel: eagerring.Pipeline}, ports)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	caps := placing
	caps.Delivers = true
	c.LinkUp(1, 1, caps)
	p := &c.peers[1]
	if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, Credit: p.Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
	body := wire.RingBody{Key: 7, Slots: eagerring.Slots, SlotBytes: 16 << 10, Notice: 1}
	offer := make([]byte, 64)
	n := body.Encode(offer)
	if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ring, Credit: p.Credit().Granted(), Length: uint32(n)}, offer[:n]); err != nil {
		t.Fatal(err)
	}
	d := shm.Descriptor{Op: shm.OpSend, Req: 1, Peer: 1, Class: shm.ClassArena}
	d.SetBody(0, 32<<10, 0, 0) // more than is copied
	if err := c.Submit(2, 0, &d); err != nil {
		t.Fatal(err)
	}
	for c.Flush(3, ports) {
	}
	if len(ports.writes) == 0 {
		t.Fatal("the frame did not go by the ring")
	}
	if f := p.Out().At(p.Out().Last()); f.Head.Flags&wire.FlagAckNow == 0 {
		t.Errorf("the send of frame %d waits for another frame's acknowledgement", f.Head.Seq)
	}
}

// TestHandedOverLate: a frame of a connection is delivered after the end of the connection was
// reported, as by a link that cannot end it at once. The time without a connection counts from
// the frame then, and the peer is not given up.
func TestHandedOverLate(t *testing.T) {
	x := newCrowd(t)
	p := &x.core.peers[1]
	now := int64(time.Hour)
	x.core.LinkDown(now, 1, link.ErrBroken)
	h := wire.Header{Type: wire.Left, Seq: 1, Credit: p.Credit().Granted(), Src: 3}
	if err := x.core.Deliver(now+1, 1, &h, nil); err != nil {
		t.Fatal(err)
	}
	x.core.Tick(now + 2)
	if f := x.core.Failed(); f != nil {
		t.Errorf("the peer was heard just now, and is given up: %v", f)
	}
}
