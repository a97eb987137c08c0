package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// frequent is a link that gathers from buffers at low addresses.
type frequent struct{ asked int }

func (f *frequent) Gathers(_ link.Peer, ref link.Ref) bool {
	f.asked++
	return ref.Off < 1<<16
}

// TestGatheredSendsEndLater: a buffer that the link gathers from is not copied, and
// its send ends when its frame is acknowledged; of another buffer it ends at once.
func TestGatheredSendsEndLater(t *testing.T) {
	x := newCrowd(t)
	x.regions[RegionPool] = make([]byte, 16<<20) // with the copies
	g := &frequent{}
	x.core.cfg.Gatherer = g
	send := func(req uint32, off, n uint64) *link.Frame {
		d := shm.Descriptor{Op: shm.OpSend, Req: req, Peer: 2, Class: shm.ClassArena}
		d.SetBody(off, n, 0, 0)
		x.submit(0, d)
		for x.core.Flush(3, x) {
		}
		return &x.frames[len(x.frames)-1]
	}
	arena := RegionFirst + 1
	f := send(1, 0, 4096)
	if !f.Gather || f.Payload.Region != arena || f.Head.Flags&wire.FlagAckNow == 0 || x.done != 0 {
		t.Errorf("gathered: %+v, %d sends have ended", f, x.done)
	}
	ack := wire.Header{Type: wire.Ack, Ack: f.Head.Seq, Credit: x.core.peers[1].granted}
	if err := x.core.Deliver(4, 1, &ack, nil); err != nil {
		t.Fatal(err)
	}
	if x.done != 1 {
		t.Errorf("%d sends have ended with the acknowledgement, want 1", x.done)
	}
	f = send(2, 1<<17, 4096)
	if f.Gather || f.Payload.Region == arena || x.done != 2 {
		t.Errorf("copied: %+v, %d sends have ended", f, x.done)
	}
	if send(3, 0, 8); g.asked != 2 {
		t.Errorf("the link was asked %d times, want 2: 8 bytes fit the frame", g.asked)
	}
}
