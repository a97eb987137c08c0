package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestSendToWhoHasLeftAStrangersPod: an eager send to a rank that had left before the first
// connection of the pods fails like one to a rank that is known to have left. A send that
// arrived before its receiver left succeeds. In both cases the frame that reports the
// departure acknowledges the send.
func TestSendToWhoHasLeftAStrangersPod(t *testing.T) {
	for name, c := range map[string]struct {
		class   shm.Class
		goodbye wire.Type
		took    uint64
		want    shm.Status
	}{
		"slab":                          {shm.ClassSlab, wire.Left, 1, shm.StatusPeerLeft},
		"arena":                         {shm.ClassArena, wire.Left, 1, shm.StatusPeerLeft},
		"its whole pod":                 {shm.ClassSlab, wire.Bye, 1, shm.StatusPeerLeft},
		"it had come":                   {shm.ClassSlab, wire.Left, 2, shm.StatusOK},
		"arena, it had come":            {shm.ClassArena, wire.Bye, 2, shm.StatusOK},
		"a sidecar that says no number": {shm.ClassSlab, wire.Left, 0, shm.StatusOK},
	} {
		for _, delivers := range []bool{false, true} { // the link reports the delivery before
			x := newStranger(t)
			s := newStatuses(x)
			d := arena(shm.OpSend, 2, 1, 1000)
			d.Class = c.class
			x.submit(0, d)
			x.meet()
			for x.core.Flush(2, s) {
			}
			if delivers {
				x.core.Delivered(2, 1, x.core.peers[1].Out().Last())
			}
			if _, ended := s.got[0]; ended {
				t.Errorf("%s, link that delivers: %v: it has ended before its pod was heard of", name, delivers)
			}
			x.deliver(wire.Header{Type: c.goodbye, Src: 2, A: c.took, Ack: x.core.peers[1].Out().Last()}, nil)
			if got, ended := s.got[0]; !ended || got != c.want {
				t.Errorf("%s, link that delivers: %v: ended %v with %v, want %v", name, delivers, ended, got, c.want)
			}
		}
	}
}

// TestTooLateForWhoHasJustLeft: an eager message arrives after its receiver has left and
// before that is reported to the sender's pod, which takes some time. The frame that
// acknowledges the message reports that it came too late.
func TestTooLateForWhoHasJustLeft(t *testing.T) {
	x := newCrowd(t)
	x.core.Detach(2, 0, nil)
	if n := x.core.peers[1].toldLeft; n != 0 {
		t.Fatalf("the other pod was told of %d ranks at once", n)
	}
	x.deliver(wire.Header{Type: wire.Eager, Src: 2, Dst: 0, Context: 9, A: 8, Length: 8}, make([]byte, 8))
	o := x.core.peers[1].Out()
	f := o.At(o.Last())
	if f.Head.Type != wire.Left || f.Head.Src != 0 || f.Head.A != x.seq {
		t.Errorf("told was %v of rank %d, which took less than frame %d; want a Left of rank 0, and frame %d", f.Head.Type, f.Head.Src, f.Head.A, x.seq)
	}
}

// newStranger returns a manyPeers whose other pod has never been connected.
func newStranger(t *testing.T) *manyPeers {
	t.Helper()
	x := &manyPeers{lone: lone{regions: map[link.Region][]byte{}}, t: t, scratch: make([]byte, 1<<20), room: -1}
	x.attach()
	return x
}
