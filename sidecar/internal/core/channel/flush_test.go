package channel

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
)

// TestBlockedPeerIsNotTouched checks that a link that takes nothing is offered one frame,
// however many wait, and that waiting frames do not count as work that can be done at once.
func TestBlockedPeerIsNotTouched(t *testing.T) {
	r, _ := connected(t, 2)
	p := r.Peer(1)
	const waiting = 10_000
	for range waiting {
		r.Emit(p, wire.Matched)
	}
	g := &gate{}
	r.Flush(2, g) // finds that the link takes nothing
	g.offered = 0
	for range 10 {
		if r.Flush(3, g) {
			t.Fatal("a link that takes nothing is work for the next turn")
		}
	}
	if g.offered > 10 {
		t.Errorf("a link that takes nothing was offered %d frames in 10 turns, want 10", g.offered)
	}
	// A turn posts a bounded number of frames; the rest is work for the next turn.
	g.open = 1 << 30
	flushes := 1
	for ; r.Flush(4, g); flushes++ {
		if g.offered > 2*waiting {
			t.Fatal("frames are offered again that were taken")
		}
	}
	if taken := 1<<30 - g.open; taken != waiting || flushes < waiting/flushFrames {
		t.Errorf("%d frames were posted in %d turns, want %d in at least %d", taken, flushes, waiting, waiting/flushFrames)
	}
}
