package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// shutContext is the context that rank 1 shuts in these tests.
const shutContext = 7

// sends lets rank 0 send n bytes to rank 1 in a context, and returns the send's status.
func (d *duo) sends(context uint32, n uint64, flags uint8) shm.Status {
	d.t.Helper()
	x := shm.Descriptor{Op: shm.OpSend, Req: 1, Peer: 1, Context: context, Class: shm.ClassArena, Flags: flags}
	x.SetBody(0, n, 0, 0)
	d.ports[0].ended = nil
	d.submit(0, x)
	d.run()
	if len(d.ports[0].ended) != 1 {
		d.t.Fatalf("a send of %d bytes in context %d has ended %d times", n, context, len(d.ports[0].ended))
	}
	return d.ports[0].ended[0].Status
}

// TestShutContext checks that a message to a context that its receiver has shut retains
// neither memory there nor credit of its sender, and that a sender that waits for the receiver
// is notified.
func TestShutContext(t *testing.T) {
	for _, protocol := range []rendezvous.Protocol{rendezvous.Stream, rendezvous.Get, rendezvous.Put} {
		d := newDuo(t, protocol, link.Caps{Register: true, Read: true, Write: true, InOrder: true})
		d.submit(1, shm.Descriptor{Op: shm.OpShut, Context: shutContext})
		d.run()
		for range 100 { // six times the credit
			if status := d.sends(shutContext, 60<<10, 0); status != shm.StatusOK {
				t.Fatalf("a small message: %v", status)
			}
		}
		for what, status := range map[string]shm.Status{
			"a synchronous one": d.sends(shutContext, 60<<10, shm.FlagSync),
			"a large one":       d.sends(shutContext, duoBytes, 0),
		} {
			if status != shm.StatusPeerLeft {
				t.Errorf("%s: %v, want peer left", what, status)
			}
		}
		d.sends(shutContext, 0, shm.FlagSync) // returns the last credit
		to, c := &d.cores[0].peers[1], d.cores[1]
		if free := uint64(to.Credit().Granted()-to.Credit().Used()) * wire.CreditUnit; free != c.cfg.CreditBytes {
			t.Errorf("%d bytes of credit are left, of %d", free, c.cfg.CreditBytes)
		}
		if c.Stats().Parked != 0 || c.Stats().UnexpectedBytes != 0 || len(d.keys) != 0 {
			t.Errorf("kept: %d messages, %d bytes, %d registrations", c.Stats().Parked, c.Stats().UnexpectedBytes, len(d.keys))
		}
		d.submit(1, duoMessage(shm.OpRecv, 3, 0, 0))
		x := duoMessage(shm.OpSend, 4, 1, 0)
		d.ports[0].ended = nil
		d.submit(0, x)
		if d.run(); len(d.ports[0].ended) != 1 || d.ports[0].ended[0].Status != shm.StatusOK {
			t.Errorf("a message of another context: %+v", d.ports[0].ended)
		}
	}
}

// TestShutsAreBounded checks that an application that shuts contexts without end takes a
// bounded amount of memory.
func TestShutsAreBounded(t *testing.T) {
	d := newDuo(t, rendezvous.Stream, link.Caps{})
	for i := range uint32(p2p.ShutLimit + 10) {
		d.submit(1, shm.Descriptor{Op: shm.OpShut, Context: i})
	}
	if n := d.cores[1].p2p.Stats().Shut; n != p2p.ShutLimit {
		t.Errorf("%d contexts are noted, want %d", n, p2p.ShutLimit)
	}
}
