package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestByeGivesCreditBack checks that a pod that says goodbye is asked for the part of its window that
// it does not use, so that another pod gets it, and that it is not asked if no rank is left here.
func TestByeGivesCreditBack(t *testing.T) {
	const first, budget = 64 << 10, 64 << 10
	for _, left := range []bool{false, true} {
		c := receiver(t, Config{Pods: 3, CreditBytes: 512 << 10, CreditFirst: first, CreditBudget: budget})
		seq := [3]uint64{}
		deliver := func(from link.Peer, h wire.Header) {
			t.Helper()
			seq[from]++
			p := &c.peers[from]
			h.Seq, h.Src, h.Ack, h.Credit = seq[from], uint32(from), p.Out().Next(), p.Credit().Granted()
			if err := c.Deliver(3, from, &h, make([]byte, h.Length)); err != nil {
				t.Fatalf("%v of pod %d: %v", h.Type, from, err)
			}
			for c.Flush(3, swallows{}) {
			}
		}
		fill := func(from link.Peer) { // uses the first window up, and announces one message more
			deliver(from, wire.Header{Type: wire.Eager, A: first, Length: first})
			deliver(from, wire.Header{Type: wire.RTS, A: first, B: 2, Length: wire.RTSBytes})
		}
		widened := func(from link.Peer) bool { return c.peers[from].Credit().Grant() > first/wire.CreditUnit }
		if fill(1); !widened(1) {
			t.Fatal("the window of pod 1 is not wider")
		}
		if left {
			if err := c.Submit(2, 0, &shm.Descriptor{Op: shm.OpDetach}); err != nil {
				t.Fatal(err)
			}
			for c.Advance(2) > 0 {
			}
			c.Flush(2, swallows{})
		}
		last := c.peers[1].Out().Last()
		deliver(1, wire.Header{Type: wire.Bye})
		if left {
			if c.peers[1].Out().Last() != last {
				t.Error("a pod is asked for credit that no rank here needs")
			}
			continue
		}
		if f := c.peers[1].Out().At(last + 1); c.peers[1].Out().Last() != last+1 || f.Head.Type != wire.Yield || f.Head.A != budget {
			t.Fatalf("%d frames answer the goodbye, the first one %v of %d bytes", c.peers[1].Out().Last()-last, f.Head.Type, f.Head.A)
		}
		if fill(2); widened(2) {
			t.Fatal("pod 2 has credit that pod 1 has not given back")
		}
		deliver(1, wire.Header{Type: wire.Yielded, A: budget})
		deliver(2, wire.Header{Type: wire.RTS, A: first, B: 4, Length: wire.RTSBytes})
		if !widened(2) {
			t.Error("pod 2 does not get the credit that pod 1 has given back")
		}
	}
}

// askedAtBye returns a core whose pod 1 has left and was asked for credit, and delivers its next frames.
func askedAtBye(t *testing.T, first uint64) (c *Core, deliver func(wire.Header)) {
	t.Helper()
	c = receiver(t, Config{Pods: 2, CreditBytes: 512 << 10, CreditFirst: first, CreditBudget: first})
	p := &c.peers[1]
	deliver = func(h wire.Header) {
		t.Helper()
		h.Src, h.Ack, h.Credit = 1, p.Out().Next(), p.Credit().Granted()
		if err := c.Deliver(3, 1, &h, make([]byte, h.Length)); err != nil {
			t.Fatalf("%v: %v", h.Type, err)
		}
		for c.Flush(3, swallows{}) {
		}
	}
	deliver(wire.Header{Seq: 1, Type: wire.Eager, A: first, Length: uint32(first)})
	deliver(wire.Header{Seq: 2, Type: wire.RTS, A: first, B: 2, Length: wire.RTSBytes})
	deliver(wire.Header{Seq: 3, Type: wire.Bye})
	if f := p.Out().At(p.Out().Last()); f.Head.Type != wire.Yield || p.Out().Base()+1 != p.Out().Last() {
		t.Fatalf("%d frames wait, the last one %v", p.Out().Last()-p.Out().Base(), f.Head.Type)
	}
	return c, deliver
}

// TestByeAndEndBeforeTheAnswer checks that a pod whose sidecar ends with a Yield unanswered is parted
// from, as without a Yield: its connection is not lost, no other one is made, and the job goes on. If
// its sidecar connects again, it gets the Yield.
func TestByeAndEndBeforeTheAnswer(t *testing.T) {
	const first = 64 << 10
	c, deliver := askedAtBye(t, first)
	p := &c.peers[1]
	if !c.Parted(1) {
		t.Error("the pod is not parted from")
	}
	c.LinkDown(4, 1, link.ErrBroken)
	for c.Advance(4) > 0 {
	}
	if p.State() != channel.Idle || c.Failed() != nil {
		t.Errorf("state %d, want %d; the job has failed: %v", p.State(), channel.Idle, c.Failed())
	}
	if left := c.Leftover(); len(left.Peers) != 0 {
		t.Errorf("left for peers: %+v", left.Peers)
	}

	c.LinkUp(5, 1, link.Caps{Name: "test"})
	if err := c.Deliver(5, 1, &wire.Header{Type: wire.Ack, Ack: p.Out().Base(), Credit: p.Credit().Granted(), A: wire.FeatureAgain | wire.FeatureYield}, nil); err != nil {
		t.Fatal(err)
	}
	for c.Flush(5, swallows{}) {
	}
	if p.State() != channel.Ready || p.Out().UnpostedFrames() != 0 {
		t.Errorf("state %d, and %d frames are not posted again", p.State(), p.Out().UnpostedFrames())
	}
	deliver(wire.Header{Seq: 4, Type: wire.Yielded, A: first})
	if !p.Out().Empty() {
		t.Error("the Yield is not acknowledged")
	}
}

// TestUnreadYieldIsNothingLost checks that a Yield which a pod that has left does not read, because its
// sidecar is stopped, does not count as undelivered when this sidecar ends.
func TestUnreadYieldIsNothingLost(t *testing.T) {
	c, _ := askedAtBye(t, 64<<10)
	if err := c.Submit(4, 0, &shm.Descriptor{Op: shm.OpDetach}); err != nil {
		t.Fatal(err)
	}
	for c.Advance(4) > 0 {
	}
	c.Leave(4)
	c.Flush(4, swallows{})
	// The others are the Yield and the goodbye; the refusal of the announced message counts.
	o := c.peers[1].Out()
	if left, want := c.Leftover(), int(o.Last()-o.Base())-2; len(left.Peers) != 1 || left.Peers[0].Frames != want {
		t.Errorf("left for peers: %+v, want %d frames", left.Peers, want)
	}
}
