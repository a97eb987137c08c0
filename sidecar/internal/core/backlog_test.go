package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestBacklog checks that no descriptors are taken from a rank that has too many messages
// waiting for a link, while its neighbour is served. The count of waiting messages stays right
// after a connection breaks, when it is unknown how many messages have arrived, and after the
// peer's end.
func TestBacklog(t *testing.T) {
	x := newCrowd(t)
	p := &x.core.peers[1]
	x.room = 101 // the greeting is one of them
	say := func(rank SessionID) {
		d := shm.Descriptor{Op: shm.OpSend, Peer: 2, Flags: shm.FlagSilent}
		d.SetInline([]byte("12345678"))
		x.submit(rank, d)
	}
	counts := func(when string, first, second int) {
		t.Helper()
		for rank, want := range []int{first, second} {
			if n := x.core.channel.Waiting(uint32(rank)); n != want || x.core.Held(SessionID(rank)) != (want >= 256) {
				t.Errorf("%s: %d messages of rank %d wait, held=%v; want %d", when, n, rank, x.core.Held(SessionID(rank)), want)
			}
		}
	}
	for range 300 {
		say(0)
	}
	say(1)
	counts("submitted", 300, 1)
	x.core.Flush(2, x)
	counts("100 are posted", 200, 1)
	x.core.LinkDown(3, 1, link.ErrBroken)
	x.core.LinkUp(3, 1, link.Caps{Name: "test"})
	greeting := wire.Header{Type: wire.Ack, Ack: 60, Credit: p.Credit().Granted()}
	if err := x.core.Deliver(3, 1, &greeting, nil); err != nil {
		t.Fatal(err)
	}
	counts("60 have come, on the connection before", 240, 1)
	x.room = 1 << 20
	for x.core.Flush(4, x) {
	}
	counts("all are posted", 0, 0)
	x.room = 0
	for range 256 {
		say(0)
	}
	counts("the link is stuck", 256, 0)
	p.SetGone(true)
	x.core.peerDied(p, link.ErrBroken)
	counts("the peer has ended", 0, 0)
}
