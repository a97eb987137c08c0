package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
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
