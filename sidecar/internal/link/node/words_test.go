package node

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestEndBeforeRegion: a connection that breaks before this side has heard where a frame's
// payload lies is broken, which is mended, and not the peer's fault, which ends the job.
func TestEndBeforeRegion(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(x *two)
	}{
		{"the proven socket", func(x *two) { x.a.l.Break(0) }},
		{"both, with words that nobody has read", func(x *two) { x.hither.wake(); x.a.l.Forget(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTwo(t, 1)
			if n := x.a.l.Post(0, []*link.Frame{x.frame(100_000)}); n != 1 {
				t.Fatal("the frame was not taken")
			}
			c.end(x)
			settled(t)
			x.b.l.look = true
			for range 10 {
				x.b.l.Poll(x.toB)
			}
			if len(x.toB.downs) != 1 || !errors.Is(x.toB.downs[0], link.ErrBroken) || errors.Is(x.toB.downs[0], link.ErrProtocol) {
				t.Errorf("%v, want an end by %v", x.toB, link.ErrBroken)
			}
		})
	}
}

// fill fills a side's local socket with words that only wake.
func fill(t *testing.T, c *conn) {
	t.Helper()
	w := word24{kind: wordWake}
	for range 1 << 16 {
		if err := c.post(&w); err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("a socket takes everything")
}

// TestRegionGoneUnsaid: a region that is no more before its peer could be told of it
// leaves nothing to hear.
func TestRegionGoneUnsaid(t *testing.T) {
	x := newTwo(t, 1)
	fill(t, x.there)
	r := x.a.m.NewRegion(8192)
	if _, err := x.a.l.Register(r); err != nil {
		t.Fatal(err)
	}
	x.a.l.DropRegion(r.Region)
	for x.hither.hear() > 0 {
	}
	x.rest(t)
	if x.a.l.Arm() || x.b.l.Arm() {
		t.Error("there is something to do for good")
	}
	if n := len(x.there.words); n != 0 {
		t.Errorf("%d words were never said", n)
	}
}

// TestSleepWithWords: who sleeps with something to say that the local socket did not take
// is woken when it does, and not before.
func TestSleepWithWords(t *testing.T) {
	x := newTwo(t, 1)
	fill(t, x.there)
	key, err := x.a.l.Register(x.a.m.NewRegion(8192))
	if err != nil {
		t.Fatal(err)
	}
	if len(x.there.words) != 1 {
		t.Fatalf("%d words wait, want 1", len(x.there.words))
	}
	readable := func() bool {
		p := []unix.PollFd{{Fd: int32(x.a.l.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	}
	for i := range 5 { // an event may be left from before
		for x.a.l.Poll(x.toA) > 0 {
		}
		if !x.a.l.Arm() && !readable() {
			break
		}
		if i == 4 {
			t.Fatal("it does not sleep while there is nothing that it can do")
		}
	}
	dst := x.b.m.NewRegion(8192)
	if err := x.b.l.Read(0, 7, dst, key); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		x.b.l.Poll(x.toB)
	}
	if !readable() {
		t.Fatal("nobody has woken it")
	}
	for range 100 {
		x.a.l.Poll(x.toA)
		x.b.l.Poll(x.toB)
	}
	if err, ok := x.toB.dones[7]; !ok || err != nil {
		t.Errorf("the read is over: %v, %v", ok, err)
	}
	if x.a.l.Arm() || readable() && x.a.l.Poll(x.toA)+x.a.l.Poll(x.toA) > 0 {
		t.Error("it is woken for nothing")
	}
}

// TestMemoryNotHad: a peer whose memory cannot be had here is not met a second time, to
// fail in the same way without end.
func TestMemoryNotHad(t *testing.T) {
	x := newTwo(t, 1)
	r := x.a.m.NewRegion(8192)
	s := x.a.l.shares[r.Region]
	x.there.say(word24{kind: wordHere, region: 77, size: 1 << 40, share: s})
	for x.hither.hear() > 0 && x.hither.err == nil {
	}
	x.b.l.Poll(x.toB)
	if len(x.toB.downs) != 1 || !errors.Is(x.toB.downs[0], link.ErrBroken) {
		t.Fatalf("%v, want an end by %v", x.toB, link.ErrBroken)
	}
	e, err := x.b.l.Prepare(0)
	if err == nil {
		t.Error("another end was made", e.Close())
	}
}
