package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestLastWordKeepsRegistration: who has said that it takes nothing more of a message
// does not reach for its memory, whatever became of the message. Neighbours that share
// the registration go on with it.
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
			h.A, h.Seq, h.Ack = announced, 1, c.peers[1].out.last
			if err := c.Deliver(5, 1, &h, nil); err != nil {
				t.Fatal(err)
			}
			if ports.keys != 0 || ports.inOrder != 1 {
				t.Fatalf("%d registrations are left, %d ended in order", ports.keys, ports.inOrder)
			}
		})
	}
}
