package core

import (
	"errors"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// seated is a core of three pods whose peers are reached, and which knows its machine.
func seated(t *testing.T, machine uint64) *Core {
	t.Helper()
	c, err := New(Config{PodOf: []int32{0, 1, 2}, Pods: 3, Machine: machine}, idle{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		p := &c.peers[i]
		c.reach(p)
		c.LinkUp(1, p.id, link.Caps{})
		p.state, p.greet = peerReady, false
	}
	return c
}

// places are the frames of that type to a peer since the last call.
func places(c *Core, peer link.Peer, from *uint64) (n int) {
	p := &c.peers[peer]
	n = int(p.out.last - *from)
	*from = p.out.last
	return n
}

// Those are told with whom large messages move, at a bounded rate; who is on another
// machine is told no more, nor who has said goodbye.
func TestSitTellsThoseWithWhomLargeMessagesMove(t *testing.T) {
	c := seated(t, 7)
	var to [3]uint64
	tell := func(what string, now int64, seat Seat, want1, want2 int) {
		t.Helper()
		c.Sit(now, &seat)
		if a, b := places(c, 1, &to[1]), places(c, 2, &to[2]); a != want1 || b != want2 {
			t.Errorf("%s: told %d and %d times, want %d and %d", what, a, b, want1, want2)
		}
	}
	const ms = int64(time.Millisecond)
	now := 10 * ms
	tell("nothing moves", now, Seat{CPU: 1}, 0, 0)
	c.moves(&c.peers[1])
	c.moves(&c.peers[1])
	tell("the first time", now, Seat{CPU: 1}, 1, 0)
	tell("nothing has moved since", now+seatAgain, Seat{CPU: 2}, 0, 0)
	now += 2 * seatAgain
	c.moves(&c.peers[1])
	c.movesPart(&c.peers[2], largePart-1)
	tell("again, and one with little", now, Seat{CPU: 1}, 1, 0)
	c.movesPart(&c.peers[2], largePart)
	c.moves(&c.peers[1])
	tell("the same at once", now+seatChanged, Seat{CPU: 1}, 0, 1)
	c.moves(&c.peers[1])
	c.moves(&c.peers[2])
	tell("a change", now+seatChanged, Seat{CPU: 0}, 1, 0)

	elsewhere := &wire.Header{Type: wire.Place, Seq: 1, A: 8, B: 1}
	if err := c.Deliver(now, 1, elsewhere, nil); err != nil {
		t.Fatal(err)
	}
	c.peers[2].bye = true
	c.moves(&c.peers[1])
	c.moves(&c.peers[2])
	tell("elsewhere, and gone", now+10*seatAgain, Seat{CPU: 3}, 0, 0)
	if len(c.Neighbours()) != 0 {
		t.Errorf("neighbours %+v", c.Neighbours())
	}

	c = seated(t, 0)
	to = [3]uint64{}
	c.moves(&c.peers[1])
	tell("the machine is not known", now, Seat{CPU: 1}, 0, 0)
}

// What is told arrives as it was, bit by bit.
func TestPlaceArrives(t *testing.T) {
	c := seated(t, 7)
	for i, want := range []Seat{{CPU: -1}, {CPU: 0}, {CPU: 65534, Computes: Processors{0: 1, 7: 1 << 63}}, {CPU: 3, Computes: Processors{1: 5}}} {
		from := seated(t, 7)
		from.moves(&from.peers[1])
		from.Sit(1, &want)
		f := from.peers[1].out.unposted()[0]
		f.Head.Seq = uint64(i + 1)
		if err := c.Deliver(int64(i), 2, &f.Head, f.Inline[:f.Head.Length]); err != nil {
			t.Fatal(err)
		}
		if n := c.Neighbours(); len(n) != 1 || n[0].Peer != 2 || n[0].Seat != want || n[0].Heard != int64(i) {
			t.Errorf("told %+v, heard %+v", want, n)
		}
	}
}

func TestPlaceRefused(t *testing.T) {
	for what, h := range map[string]wire.Header{
		"no machine":     {Type: wire.Place, Seq: 1, B: 1},
		"processor":      {Type: wire.Place, Seq: 1, A: 1, B: 1<<16 + 1},
		"too many bytes": {Type: wire.Place, Seq: 1, A: 1, Length: wire.PlaceMax + 1},
	} {
		c := seated(t, 7)
		if err := c.Deliver(1, 1, &h, make([]byte, h.Length)); !errors.Is(err, link.ErrProtocol) {
			t.Errorf("%s: %v, want a violation", what, err)
		}
	}
}

// To sit and to listen allocates nothing once a neighbour is known.
func TestSitAllocates(t *testing.T) {
	c := seated(t, 7)
	p, seat, now, h := &c.peers[1], Seat{}, int64(0), wire.Header{Type: wire.Place, A: 7}
	g := &gate{open: 1 << 30}
	if n := testing.AllocsPerRun(100, func() {
		now += seatAgain
		c.moves(p)
		c.Sit(now, &seat)
		c.Flush(now, g)
		h.Seq, h.Ack = h.Seq+1, p.out.last
		if err := c.Deliver(now, 1, &h, nil); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestEagerMessagesAreLarge: messages that go at once count from largePart on, with those
// who send them and those whom they are for.
func TestEagerMessagesAreLarge(t *testing.T) {
	c := seated(t, 7)
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	p := &c.peers[1]
	for n, want := range map[uint64]uint64{largePart - 1: 0, largePart: 1} {
		before := c.Moved()
		o := outgoing{dst: 1, total: n, class: shm.ClassSlab, payload: link.Ref{Region: RegionFirst, Len: n}}
		c.sendEager(c.sessions[0], p, &o)
		if got := c.Moved() - before; got != want {
			t.Errorf("%d bytes sent are %d pieces of large messages, want %d", n, got, want)
		}
		before = c.Moved()
		h := &wire.Header{Type: wire.Eager, Dst: 0, Src: 1, A: n, Length: uint32(n)}
		if _, err := c.checkEager(p, h); err != nil {
			t.Fatal(err)
		}
		if got := c.Moved() - before; got != want {
			t.Errorf("%d bytes that come are %d pieces, want %d", n, got, want)
		}
	}
}
