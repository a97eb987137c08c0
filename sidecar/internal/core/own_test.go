package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// telling records the requests that end, in their order.
type telling struct {
	lone
	ended []uint32
}

func (p *telling) Complete(_ SessionID, d *shm.Descriptor) {
	if d.Op == shm.OpDone {
		p.ended = append(p.ended, d.Req)
	}
}

// TestOwnSendEndsAfterItsReceive checks that a small send to a rank of the same sidecar ends
// after the completions that its arrival causes (L§5), in whatever memory its payload is.
func TestOwnSendEndsAfterItsReceive(t *testing.T) {
	const receive, send = 1, 2
	for _, x := range []struct {
		class shm.Class
		n     uint64
	}{{shm.ClassInline, 0}, {shm.ClassInline, shm.InlineMax}, {shm.ClassSlab, 100}, {shm.ClassArena, 20}, {shm.ClassArena, 100}, {shm.ClassArena, 8 << 10}} {
		ports := &telling{lone: lone{regions: map[link.Region][]byte{}}}
		c, err := New(Config{Self: 0, PodOf: []int32{0}, Pods: 1}, ports)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		c.LinkUp(1, 0, link.Caps{Name: "test", EagerMax: 8 << 10})
		r := shm.Descriptor{Op: shm.OpRecv, Req: receive, Class: shm.ClassArena}
		r.SetBody(0, x.n, 0, 0)
		s := shm.Descriptor{Op: shm.OpSend, Req: send, Class: x.class}
		if x.class == shm.ClassInline {
			s.SetInline(make([]byte, x.n))
		} else {
			s.SetBody(16<<10, x.n, 0, 0)
		}
		for _, d := range []shm.Descriptor{r, s} {
			if err := c.Submit(1, 0, &d); err != nil {
				t.Fatal(err)
			}
		}
		early := len(ports.ended)
		for c.Flush(1, ports) {
		}
		for i := range ports.frames {
			f := &ports.frames[i]
			payload := f.Inline[:]
			if f.Payload.Region != RegionNone {
				payload = ports.Bytes(f.Payload)
			}
			if err := c.Deliver(1, 0, &f.Head, payload[:f.Head.Length]); err != nil {
				t.Fatal(err)
			}
		}
		if early != 0 || !slices.Equal(ports.ended, []uint32{receive, send}) {
			t.Errorf("%d bytes of class %d: %d ends before it is delivered; in all %v, want the receive's (%d) and the send's (%d)", x.n, x.class, early, ports.ended, receive, send)
		}
	}
}
