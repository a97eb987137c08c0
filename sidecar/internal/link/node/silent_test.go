package node

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

var signOfLife = []*link.Frame{{Head: wire.Header{Type: wire.Heartbeat}}}

// beSilent polls a until its connection to b is silent.
func (x *two) beSilent(t *testing.T) {
	t.Helper()
	for begun := time.Now(); len(x.a.l.visits.list) > 0; x.a.l.Poll(x.toA) {
		if time.Since(begun) > time.Minute {
			t.Fatal("a connection that carries nothing is read for a minute")
		}
	}
}

// until polls a until over returns true.
func (x *two) until(t *testing.T, what string, over func() bool) {
	t.Helper()
	for begun := time.Now(); !over(); x.a.l.Poll(x.toA) {
		if time.Since(begun) > time.Minute {
			t.Fatal(what)
		}
	}
}

// TestSilentPeer checks that a silent connection is not read, that its peer knows that it has
// to send a wake-up, and that each of the things that a peer does is noticed all the same.
func TestSilentPeer(t *testing.T) {
	x := newTwo(t, 1)
	x.beSilent(t)
	if x.hither.out.sleep.Load() == 0 {
		t.Fatal("the peer does not see that it has to send a wake-up")
	}
	if x.a.l.Arm() {
		t.Error("Arm reports work of a silent connection")
	}
	if x.a.l.Poll(x.toA); x.hither.out.sleep.Load() == 0 {
		t.Error("the end of a sleep has cleared the flag of a silent connection")
	}

	x.b.l.Post(0, signOfLife)
	x.until(t, "the frame of a silent peer is never read", func() bool { return x.toA.frames == 1 })
	if x.hither.out.sleep.Load() != 0 {
		t.Error("the peer of a connection that is read sends wake-ups")
	}
	before := x.b.l.Stats().Wakes
	x.b.l.Post(0, signOfLife)
	if x.a.l.Poll(x.toA); x.toA.frames != 2 || x.b.l.Stats().Wakes != before {
		t.Errorf("%d frames and %d wake-ups: a frame on a connection in use waits, or wakes", x.toA.frames, x.b.l.Stats().Wakes-before)
	}

	x.beSilent(t)
	x.a.l.Post(0, signOfLife)
	x.b.l.Post(0, signOfLife)
	if x.a.l.Poll(x.toA); x.toA.frames != 3 {
		t.Error("a connection on which something was posted is not read")
	}

	x.beSilent(t)
	ref := x.b.m.NewRegion(8192)
	if _, err := x.b.l.Register(ref); err != nil {
		t.Fatal(err)
	}
	x.until(t, "the region of a silent peer is never mapped", func() bool { return x.there.regions[ref.Region] != nil })

	x.beSilent(t)
	x.b.l.Forget(0)
	x.until(t, "the end of a silent peer is not noticed", func() bool { return len(x.toA.downs) == 1 })
}

// TestReadOfSilentPeerThatEnds checks that the end of a silent peer is noticed if a read of its
// memory finds the end first.
func TestReadOfSilentPeerThatEnds(t *testing.T) {
	x := newTwo(t, 1)
	key, err := x.b.l.board.add(x.b.m.NewRegion(8192)) // as Register does, and the announcement is not sent
	if err != nil {
		t.Fatal(err)
	}
	x.beSilent(t)
	if err := x.a.l.Read(0, 7, x.a.m.NewRegion(4096), link.Key{Key: key}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		x.a.l.Poll(x.toA)
	}
	x.b.l.Forget(0)
	x.until(t, "the end of the peer is not noticed", func() bool { return len(x.toA.downs) == 1 })
}

// TestFirstFrameBehindLongPolls checks that the first frame of a silent peer does not wait for
// several polls that read large payloads of others.
func TestFirstFrameBehindLongPolls(t *testing.T) {
	const busy, payload = 4, 256 << 10
	a := newSide(t, busy+1)
	t.Cleanup(func() { _ = a.l.Close() })
	sink, there := &counting{mem: make([]byte, wire.FrameMax)}, &counting{mem: make([]byte, wire.FrameMax)}
	var peers []*side
	var frames []*link.Frame
	for p := range busy + 1 {
		b := newSide(t, busy+1)
		t.Cleanup(func() { _ = b.l.Close() })
		joinAs(t, a, link.Peer(p), b, 0)
		peers = append(peers, b)
		frames = append(frames, &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: payload}, Payload: b.m.NewRegion(payload)})
	}
	feed := func() {
		for p, b := range peers[:busy] {
			b.l.Poll(there)
			for b.l.Post(0, frames[p:p+1]) == 1 {
			}
		}
	}
	silent := a.l.conns[busy]
	for round := range 20 {
		for n := 0; silent.visit.in; n++ {
			if n%4 == 0 {
				feed()
			}
			a.l.Poll(sink)
		}
		for range 5 + round%8 {
			feed()
			a.l.Poll(sink)
		}
		feed()
		peers[busy].l.Post(0, signOfLife)
		polls := 0
		for ; !silent.visit.in; polls++ {
			a.l.Poll(sink)
			feed()
		}
		if polls > 2 {
			t.Fatalf("a frame of a silent peer waits for %d polls", polls)
		}
	}
}

// TestUnfinishedIsNotSilent checks that a connection with a frame that waits for room stays in
// use, since its peer sends no wake-up when it has made room.
func TestUnfinishedIsNotSilent(t *testing.T) {
	x := newTwo(t, 1)
	small := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 64}}
	for x.a.l.Post(0, []*link.Frame{small}) == 1 {
	}
	for begun := time.Now(); time.Since(begun) < 10*time.Millisecond; x.a.l.Poll(x.toA) {
	}
	if len(x.a.l.visits.list) != 1 {
		t.Error("a connection whose frame waits for room is silent")
	}
	x.rest(t)
}

// TestPeersThatCome checks that no frame is missed when connections become silent and their
// peers write at the same time, with sides that poll and with sides that sleep.
func TestPeersThatCome(t *testing.T) {
	for _, sleeps := range []bool{false, true} {
		t.Run(fmt.Sprintf("sleeps=%v", sleeps), func(t *testing.T) {
			const rounds = 200
			a, b := newSide(t, 1), newSide(t, 1)
			defer func() { _, _ = a.l.Close(), b.l.Close() }()
			join(t, a, b)
			sink := &counting{}
			reader := &sleeper{s: a, sink: sink}
			var got atomic.Int64
			over := make(chan error, 1)
			go func() {
				count := func() bool {
					for range 5000 { // long enough to become silent, at times, before it sleeps
						if a.l.Poll(sink) > 0 {
							break
						}
					}
					got.Store(int64(sink.frames))
					return sink.frames == rounds
				}
				if sleeps {
					over <- reader.until(count)
					return
				}
				for begun := time.Now(); !count(); {
					if time.Since(begun) > time.Minute {
						over <- fmt.Errorf("a frame is never read: %v", sink)
						return
					}
				}
				over <- nil
			}()
			rng := rand.New(rand.NewPCG(1, 1))
			for i := range int64(rounds) {
				time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Millisecond)))) // about as long as it takes to become silent
				b.l.Post(0, signOfLife)
				for begun := time.Now(); got.Load() <= i && time.Since(begun) < time.Minute; time.Sleep(time.Microsecond) {
				}
			}
			if err := <-over; err != nil {
				t.Error(err)
			}
		})
	}
}
