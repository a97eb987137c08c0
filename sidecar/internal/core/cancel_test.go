package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestLastWordKeepsRegistration checks that a registration ends in order when the peer has
// said that it takes no more of a message, whether the message was cancelled or refused: the
// peer does not access the memory any more. Other users of the registration may keep it.
func TestLastWordKeepsRegistration(t *testing.T) {
	for _, x := range []struct {
		name   string
		cancel bool
		last   wire.Header
	}{
		{"cancelled", true, wire.Header{Type: wire.Retracted, B: 1}},
		{"refused", false, wire.Header{Type: wire.Fin, B: uint64(shm.StatusPeerLeft)}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, ports := ringed(t, link.Caps{Name: "test", Register: true, Read: true})
			d := &shm.Descriptor{Op: shm.OpSend, Req: 3, Peer: 1, Class: shm.ClassArena}
			d.SetBody(0, 1<<20, 0, 0)
			if err := c.Submit(2, 0, d); err != nil {
				t.Fatal(err)
			}
			if x.cancel {
				if err := c.Submit(3, 0, &shm.Descriptor{Op: shm.OpCancel, Req: 3}); err != nil {
					t.Fatal(err)
				}
			}
			c.Flush(4, ports)
			var announced uint64
			for i := range ports.frames {
				if h := &ports.frames[i].Head; h.Type == wire.RTS {
					announced = h.B
				}
			}
			if announced == 0 || ports.keys != 1 {
				t.Fatalf("no announcement with a key: %d keys", ports.keys)
			}
			h := x.last
			h.A, h.Seq, h.Ack = announced, 1, c.peers[1].Out().Last()
			if err := c.Deliver(5, 1, &h, nil); err != nil {
				t.Fatal(err)
			}
			if ports.keys != 0 || ports.inOrder != 1 {
				t.Fatalf("%d registrations are left, %d ended in order", ports.keys, ports.inOrder)
			}
		})
	}
}

// TestCancelsAreWithinThePeersBounds checks that a sidecar has at most p2p.RetractWindow
// unanswered cancels at a peer, although its ranks may cancel many times as many sends.
func TestCancelsAreWithinThePeersBounds(t *testing.T) {
	const ranks, each = 2, shm.MaxRequests - 1
	x := newCrowd(t)
	c, p := x.core, &x.core.peers[1]
	for rank := range SessionID(ranks) {
		for req := range uint32(each) {
			d := shm.Descriptor{Op: shm.OpSend, Req: req, Peer: 2, Class: shm.ClassArena}
			d.SetBody(0, 128<<10, 0, 0)
			x.submit(rank, d)
		}
		for req := range uint32(each) {
			x.submit(rank, shm.Descriptor{Op: shm.OpCancel, Req: req})
		}
	}
	for answered := 0; answered < ranks*each; {
		x.frames = x.frames[:0]
		for c.Flush(2, x) {
		}
		n := 0
		for i := range x.frames {
			h := &x.frames[i].Head
			if h.Type != wire.Retract {
				continue
			}
			if n++; n > p2p.RetractWindow {
				t.Fatalf("%d cancels are not answered, want at most %d", n, p2p.RetractWindow)
			}
		}
		asked := slices.Clone(x.frames)
		for i := range asked {
			if h := asked[i].Head; h.Type == wire.Retract {
				answered++
				x.deliver(wire.Header{Type: wire.Retracted, A: h.A, B: 1, Ack: h.Seq}, nil)
			}
		}
		if n == 0 {
			t.Fatalf("%d of %d cancels are answered, and no more are sent", answered, ranks*each)
		}
	}
	if x.done != ranks*each || p.Transferring() {
		t.Errorf("%d of %d sends have ended, cancels wait: %v", x.done, ranks*each, p.Transferring())
	}
}
