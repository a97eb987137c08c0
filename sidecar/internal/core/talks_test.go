package core

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestOwnOutboxShrinks checks that the memory of a burst is released (Outbox.Shrink), also in
// the outbox of the frames among ranks of this pod, which has no heartbeats.
func TestOwnOutboxShrinks(t *testing.T) {
	x := newCrowd(t)
	c := x.core
	c.LinkUp(1, 0, link.Caps{Name: "local"})
	for range 5000 {
		d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1}
		d.SetInline(make([]byte, 8))
		x.submit(0, d)
	}
	for c.Flush(2, x) {
	}
	if p := &c.peers[0]; !p.Out().Large() {
		t.Fatal("there is room for few frames: the test shows nothing")
	}
	if next := c.Tick(int64(time.Second)); next == 0 {
		t.Error("the outbox will not be visited again")
	}
	for i := range x.frames {
		f := &x.frames[i]
		if err := c.Deliver(2, 0, &f.Head, f.Inline[:f.Head.Length]); err != nil {
			t.Fatal(err)
		}
	}
	for s := range int64(3) {
		c.Tick((s + 2) * int64(time.Second))
	}
	if p := &c.peers[0]; p.Out().Large() {
		t.Error("room for many frames is kept")
	}
}
