package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestFramesOfOthers checks that a rank knows frames of another attached rank from its own, and takes
// every frame for its own of which the rank is not known.
func TestFramesOfOthers(t *testing.T) {
	x := newCrowd(t)
	c := x.core
	check := func(when string, rank int, moving, others bool) {
		t.Helper()
		if w := c.WaitsOf(rank); w.Moving != moving || w.Others != others {
			t.Errorf("%s: rank %d moves %v, others %v", when, rank, w.Moving, w.Others)
		}
	}
	acknowledge := func() {
		c.Flush(2, x)
		hear(t, c, 2, c.peers[1].Out().Last())
	}
	check("nothing was sent", 0, false, false)

	small := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 2}
	small.SetInline(make([]byte, 8))
	x.submit(1, small)
	check("rank 1 has sent a small message", 0, true, true)
	check("rank 1 has sent a small message", 1, true, false)
	x.submit(0, small)
	check("both have", 0, true, false)
	check("both have", 1, true, false)
	acknowledge()
	check("all has arrived", 0, false, false)

	large := shm.Descriptor{Op: shm.OpSend, Class: shm.ClassArena, Peer: 2, Req: 1}
	large.SetBody(0, 16<<10, 0, 0)
	x.submit(1, large)
	if out := c.peers[1].Out(); !out.ReleaseAt(out.Last()).Hold {
		t.Fatal("the frame holds no memory: the test shows nothing of such frames")
	}
	check("rank 1 has sent from its arena", 0, true, true)
	check("rank 1 has sent from its arena", 1, true, false)
	acknowledge()

	access := small
	access.Context = shm.ProviderContext + 2
	x.submit(1, access)
	check("rank 1 has requested an access", 0, false, false)
	for i, own := range []bool{false, true} {
		if w := c.WaitsOf(i); !w.Accesses.Any || w.Accesses.Own != own {
			t.Errorf("an access of rank 1: rank %d has %+v in flight", i, w.Accesses)
		}
	}
	acknowledge()

	for range framesVisited + 1 {
		x.submit(1, small)
	}
	check("too many frames to visit", 0, true, false)
	acknowledge()

	x.submit(1, small)
	c.Detach(2, SessionID(1), nil)
	check("rank 1 has gone", 0, true, false)
}
