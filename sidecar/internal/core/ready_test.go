package core

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/p2p"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

var offering = link.Caps{Register: true, Write: true, InOrder: true}

// TestWhatIsOffered checks which receives are offered (P§5.4).
func TestWhatIsOffered(t *testing.T) {
	receive := func(n, ignore uint64) shm.Descriptor {
		x := shm.Descriptor{Op: shm.OpRecv, Req: 3, Peer: 0, Tag: 5, Class: shm.ClassArena}
		x.SetBody(0, n, ignore, 0)
		return x
	}
	eager := newDuo(t, rendezvous.Put, offering).cores[1]
	small := eager.cfg.EagerBytes
	large := offering
	large.RegisterMax = duoBytes - 1
	for _, x := range []struct {
		what  string
		caps  link.Caps
		n     uint64
		mask  uint64
		down  bool
		wants uint64
	}{
		{"a large one", offering, duoBytes, 0, false, 1},
		{"one of an eager message", offering, small, 0, false, 0},
		{"one that is longer by a byte", offering, small + 1, 0, false, 1},
		{"one of several tags", offering, duoBytes, 1, false, 0},
		{"one that is registered in parts", large, duoBytes, 0, false, 0},
		{"one of a peer that is not connected", offering, duoBytes, 0, true, 0},
	} {
		d := newDuo(t, rendezvous.Put, x.caps)
		c := d.cores[1]
		if x.down {
			c.LinkDown(d.now, 0, link.ErrBroken)
		}
		d.submit(1, receive(x.n, x.mask))
		if c.Stats().Offers != x.wants {
			t.Errorf("%s: %d offers, want %d", x.what, c.Stats().Offers, x.wants)
		}
	}
	d := newDuo(t, rendezvous.Put, offering)
	for i := range uint32(p2p.OfferWindow + 3) {
		x := receive(duoBytes, 0)
		x.Req = i
		d.submit(1, x)
	}
	if n := d.cores[1].Stats().Offers; n != p2p.OfferWindow {
		t.Errorf("%d receives are offered to one peer, want %d", n, p2p.OfferWindow)
	}
	d = newDuo(t, rendezvous.Put, offering)
	d.ports[1].deny = 1
	d.submit(1, receive(duoBytes, 0))
	d.run()
	if c := d.cores[1]; c.Stats().Unregistered != 1 || c.Polled() || len(d.types) != 0 {
		t.Errorf("one that cannot be registered: %d refusals, polled %v, frames %v", c.Stats().Unregistered, c.Polled(), d.types)
	}
}

// TestNewsOfOffers checks which frames a peer may send about a receive that is offered to it.
func TestNewsOfOffers(t *testing.T) {
	d := newDuo(t, rendezvous.Put, offering)
	d.submit(1, duoMessage(shm.OpRecv, 3, 0, 0))
	d.run()
	c := d.cores[1]
	p, id := &c.peers[0], c.sessions[0].Request(3).ID
	says := func(kind wire.Type, dst uint32, b uint64) error {
		h := wire.Header{Type: kind, Seq: p.Arrived() + 1, Ack: p.Out().Base(), Credit: p.Credit().Granted(), Dst: dst, A: id, B: b}
		return c.Deliver(d.now, 0, &h, nil)
	}
	for _, kind := range []wire.Type{wire.Taken, wire.Withdrawn} {
		if err := says(kind, 0, 1); !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%v to a rank that is not here: %v", kind, err)
		}
	}
	state := func() (offered, matched bool) {
		w, _ := c.p2p.WaitOf(c.sessions[0].Request(3))
		return len(d.keys) == 1, w.Moving
	}
	err := says(wire.Withdrawn, 1, 0)
	if offered, matched := state(); err != nil || !offered || matched {
		t.Errorf("it is written to: %v, offered %v, matched %v", err, offered, matched)
	}
	err = says(wire.Withdrawn, 1, 1)
	if offered, matched := state(); err != nil || offered || matched || c.Stats().Receives != 1 {
		t.Errorf("it is not wanted: %v, offered %v, matched %v", err, offered, matched)
	}
	if err := says(wire.Taken, 1, 0); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("taken, and not offered any more: %v", err)
	}

	d = newDuo(t, rendezvous.Put, offering)
	d.submit(1, duoMessage(shm.OpRecv, 3, 0, 0))
	d.run()
	c = d.cores[1]
	p, id = &c.peers[0], c.sessions[0].Request(3).ID
	err = says(wire.Taken, 1, 0)
	if w, _ := c.p2p.WaitOf(c.sessions[0].Request(3)); err != nil || !w.Moving || w.Peer != 0 || w.Tag != 5 || w.Bytes != duoBytes {
		t.Errorf("taken: %v, it waits for %+v", err, w)
	}
	err = says(wire.Withdrawn, 1, 1)
	if offered, matched := state(); err != nil || !offered || !matched {
		t.Errorf("withdrawn, and taken before: %v, offered %v, matched %v", err, offered, matched)
	}
	last := d.arena(1, 0)
	last[len(last)-1] = d.guard + 1
	if err := says(wire.Taken, 1, 0); err != nil || len(d.ports[1].ended) != 1 || c.Stats().Receives != 0 || len(d.keys) != 0 {
		t.Errorf("taken, and its message is there: %v, ended %v, %d keys are left", err, d.ports[1].ended, len(d.keys))
	}
}
