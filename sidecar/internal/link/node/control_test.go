package node

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestEndBeforeRegion checks that a connection that breaks before this side has received
// the region of a frame's payload ends with ErrBroken, from which the core recovers, and
// not with ErrProtocol, which ends the job.
func TestEndBeforeRegion(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(x *two)
	}{
		{"the proven socket", func(x *two) { x.a.l.Break(0) }},
		{"both sockets, with unread control messages", func(x *two) { x.hither.wake(); x.a.l.Forget(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTwo(t, 1)
			if n := x.a.l.Post(0, []*link.Frame{x.frame(100_000)}); n != 1 {
				t.Fatal("the frame was not accepted")
			}
			c.end(x)
			settled(t)
			x.b.l.checkSockets = true
			for range 10 {
				x.b.l.Poll(x.toB)
			}
			if len(x.toB.downs) != 1 || !errors.Is(x.toB.downs[0], link.ErrBroken) || errors.Is(x.toB.downs[0], link.ErrProtocol) {
				t.Errorf("%v, want one end with %v", x.toB, link.ErrBroken)
			}
		})
	}
}

// fill fills a side's local socket with wake-ups.
func fill(t *testing.T, c *conn) {
	t.Helper()
	w := control{kind: controlWake}
	for range 1 << 16 {
		if err := c.post(&w); err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("a socket accepts messages without bound")
}

// TestRegionGoneUnsent checks that a region that ends before its announcement is sent
// leaves no control messages to read.
func TestRegionGoneUnsent(t *testing.T) {
	x := newTwo(t, 1)
	fill(t, x.there)
	r := x.a.m.NewRegion(8192)
	if _, err := x.a.l.Register(r); err != nil {
		t.Fatal(err)
	}
	x.a.l.DropRegion(r.Region)
	for x.hither.readControls() > 0 {
	}
	x.rest(t)
	if x.a.l.Arm() || x.b.l.Arm() {
		t.Error("Arm always reports work")
	}
	if n := len(x.there.unsent); n != 0 {
		t.Errorf("%d control messages were never sent", n)
	}
}

// TestSleepWithControls checks that a side that sleeps with unsent control messages is
// woken when the local socket accepts them, and not before.
func TestSleepWithControls(t *testing.T) {
	x := newTwo(t, 1)
	fill(t, x.there)
	key, err := x.a.l.Register(x.a.m.NewRegion(8192))
	if err != nil {
		t.Fatal(err)
	}
	if len(x.there.unsent) != 1 {
		t.Fatalf("%d control messages wait, want 1", len(x.there.unsent))
	}
	readable := func() bool {
		p := []unix.PollFd{{Fd: int32(x.a.l.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	}
	for i := range 5 { // an earlier event may remain
		for x.a.l.Poll(x.toA) > 0 {
		}
		if !x.a.l.Arm() && !readable() {
			break
		}
		if i == 4 {
			t.Fatal("the link reports work although there is none")
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
		t.Fatal("the link was not woken")
	}
	for range 100 {
		x.a.l.Poll(x.toA)
		x.b.l.Poll(x.toB)
	}
	if err, ok := x.toB.dones[7]; !ok || err != nil {
		t.Errorf("the read has ended: %v, %v", ok, err)
	}
	if x.a.l.Arm() || readable() && x.a.l.Poll(x.toA)+x.a.l.Poll(x.toA) > 0 {
		t.Error("the link is woken without work")
	}
}

// TestPeerMemoryRefused checks that a peer whose memory this side cannot use is not
// connected through memory a second time, which would fail the same way for ever.
func TestPeerMemoryRefused(t *testing.T) {
	x := newTwo(t, 1)
	r := x.a.m.NewRegion(8192)
	s := x.a.l.shares[r.Region]
	x.there.sendControl(control{kind: controlHere, region: 77, size: 1 << 40, share: s})
	for x.hither.readControls() > 0 && x.hither.err == nil {
	}
	x.b.l.Poll(x.toB)
	if len(x.toB.downs) != 1 || !errors.Is(x.toB.downs[0], link.ErrBroken) {
		t.Fatalf("%v, want an end by %v", x.toB, link.ErrBroken)
	}
	e, err := x.b.l.Prepare(0)
	if err == nil {
		t.Error("another endpoint was made", e.Close())
	}
}
