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
