package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// TestLaterInLine checks that receives whose memory is registered in a later turn are
// registered in the order of their requests, also if another message arrives first in every
// turn.
func TestLaterInLine(t *testing.T) {
	const messages = 6
	d := newDuo(t, rendezvous.RPut, link.Caps{Register: true, Write: true})
	d.ports[1].most = 1
	for n := range uint32(messages) {
		x := duoMessage(shm.OpRecv, n, 0, int(n))
		x.Tag = uint64(n)
		d.submit(1, x)
	}
	send := func(n uint32) {
		x := duoMessage(shm.OpSend, n, 1, int(n))
		x.Tag = uint64(n)
		d.submit(0, x)
		d.run()
	}
	send(0)
	send(1) // exceeds this turn's registrations
	for n := uint32(2); n < messages; n++ {
		d.ports[1].turn = 0
		send(n) // before Advance
		d.cores[1].Advance(d.now)
		d.run()
	}
	for d.cores[1].Pending() {
		d.ports[1].turn = 0
		d.cores[1].Advance(d.now)
		d.run()
	}
	var order []uint32
	for _, x := range d.ports[1].ended {
		order = append(order, x.Req)
	}
	if !slices.Equal(order, []uint32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("receives end in the order %v", order)
	}
}

// TestLargeIsNotPassed checks that a receive whose memory is too large to be registered in the
// same turn as another's is the first of the next turn, however many other messages arrive.
func TestLargeIsNotPassed(t *testing.T) {
	const messages = 40
	d := newDuo(t, rendezvous.RPut, link.Caps{Register: true, Write: true})
	d.ports[1].most = 2
	d.ports[1].alone = link.Ref{Region: RegionFirst + 1, Off: 3 * duoBytes, Len: duoBytes}
	for n := range uint32(messages) {
		x := duoMessage(shm.OpRecv, n, 0, int(n))
		x.Tag = uint64(n)
		d.submit(1, x)
	}
	for n := range uint32(messages) {
		if n > 4 { // one arrives in every turn, and one waits already
			d.ports[1].turn = 0
		}
		x := duoMessage(shm.OpSend, n, 1, int(n))
		x.Tag = uint64(n)
		d.submit(0, x)
		d.run()
		if n > 4 {
			d.cores[1].Advance(d.now)
			d.run()
		}
	}
	for i, x := range d.ports[1].ended {
		if x.Req == 3 {
			if i > 4 {
				t.Errorf("the large one is the %dth", i)
			}
			return
		}
	}
	t.Errorf("the large one is put off in each of %d turns", messages-5)
}

// TestPartsAreCounted checks that a message of which a part was sent in frames counts as one
// message, and that its bytes count for the protocol that carried them.
func TestPartsAreCounted(t *testing.T) {
	const part = 32 << 10
	d := newDuo(t, rendezvous.RPut, link.Caps{Register: true, Write: true, RegisterMax: part})
	d.ports[1].deny = 2
	d.submit(1, duoMessage(shm.OpRecv, 3, 0, 0))
	d.submit(0, duoMessage(shm.OpSend, 4, 1, 0))
	d.run()
	if len(d.ports[1].ended) != 1 {
		t.Fatalf("%d receives have ended, frames %v", len(d.ports[1].ended), d.types)
	}
	put, stream := d.cores[0].Stats().Put, d.cores[0].Stats().Stream
	if want := (Traffic{Messages: 1, Bytes: duoBytes - part}); put != want || stream != (Traffic{Bytes: part}) {
		t.Errorf("%+v by writes, %+v in frames, want %+v by writes", put, stream, want)
	}
}
