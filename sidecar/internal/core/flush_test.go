package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// gate is a link that takes so many frames, and counts what it is offered.
type gate struct{ open, offered int }

func (g *gate) Post(_ link.Peer, frames []*link.Frame) int {
	g.offered += len(frames)
	n := min(len(frames), g.open)
	g.open -= n
	return n
}

// idle is ports that do nothing.
type idle struct{ Ports }

func (idle) Bytes(link.Ref) []byte                                    { return nil }
func (idle) Connect(link.Peer)                                        {}
func (idle) Note(NoteKind, link.Peer, uint32, uint64, uint64, uint64) {}

func (idle) Disconnect(link.Peer) {}

// TestBlockedPeerIsNotTouched: a link that takes nothing is asked with one
// frame, however many wait, and that is no work to be done at once.
func TestBlockedPeerIsNotTouched(t *testing.T) {
	c, err := New(Config{PodOf: []int32{0, 1}, Pods: 2}, idle{})
	if err != nil {
		t.Fatal(err)
	}
	p := &c.peers[1]
	c.reach(p)
	c.LinkUp(1, 1, link.Caps{})
	p.state, p.greet = peerReady, false
	const waiting = 10_000
	for range waiting {
		c.emit(p, wire.Matched)
	}
	g := &gate{}
	c.Flush(2, g) // finds out
	g.offered = 0
	for range 10 {
		if c.Flush(3, g) {
			t.Fatal("a link that takes nothing is work for the next turn")
		}
	}
	if g.offered > 10 {
		t.Errorf("a link that takes nothing was offered %d frames in 10 turns, want 10", g.offered)
	}
	// What a turn posts is bounded, and the rest is work for the next one.
	g.open = 1 << 30
	flushes := 1
	for ; c.Flush(4, g); flushes++ {
		if g.offered > 2*waiting {
			t.Fatal("frames are offered again that were taken")
		}
	}
	if taken := 1<<30 - g.open; taken != waiting || flushes < waiting/flushFrames {
		t.Errorf("%d frames were posted in %d turns, want %d in at least %d", taken, flushes, waiting, waiting/flushFrames)
	}
}
