package core

import (
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// counted are lone ports that count what is asked of the dialler.
type counted struct {
	lone
	connects, disconnects int
}

func (c *counted) Connect(link.Peer)    { c.connects++ }
func (c *counted) Disconnect(link.Peer) { c.disconnects++ }

// met is a core of pod 0 that has heard pod 1 at time 1.
func met(t *testing.T) (*Core, *counted) {
	t.Helper()
	ports := &counted{lone: lone{regions: map[link.Region][]byte{}}}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2}, ports)
	if err != nil {
		t.Fatal(err)
	}
	c.LinkUp(1, 1, link.Caps{})
	hear(t, c, 1, 0)
	c.Flush(1, ports)
	return c, ports
}

// hear delivers an acknowledgement of pod 1.
func hear(t *testing.T, c *Core, now int64, ack uint64) {
	t.Helper()
	if err := c.Deliver(now, 1, &wire.Header{Type: wire.Ack, Ack: ack, Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
}

// alive ticks as the engine does until the time, and reports whether the job
// lives.
func alive(c *Core, from, to time.Duration) bool {
	for now := from; now < to; now += time.Millisecond {
		c.Tick(int64(now))
	}
	c.Tick(int64(to))
	return c.fail == nil
}

// TestSilenceCountsFromTheLastFrame: connections that are made and say nothing
// neither prolong the life of a peer, nor are they made as fast as they break.
func TestSilenceCountsFromTheLastFrame(t *testing.T) {
	c, ports := met(t)
	now, asked := time.Duration(0), 0
	for ; c.fail == nil && now < time.Minute; now += time.Millisecond {
		c.Tick(int64(now) + 2)
		switch p := &c.peers[1]; {
		case now == 10*time.Millisecond:
			c.LinkDown(int64(now), 1, link.ErrBroken)
		case p.State() == channel.Connecting && ports.connects > asked:
			asked = ports.connects
			c.LinkUp(int64(now), 1, link.Caps{})
		case p.State() == channel.Greeting:
			c.LinkDown(int64(now), 1, link.ErrBroken)
		}
	}
	if now < 4500*time.Millisecond || now > 4600*time.Millisecond {
		t.Errorf("the peer died after %v, want 4.5 s after the first break at 10 ms", now)
	}
	if ports.connects > 20 {
		t.Errorf("%d connections in 4.5 s", ports.connects)
	}
}

// TestOwnAbsence: a sidecar that did not run itself does not count the time against its peers,
// and gives those up that stay silent when it runs again.
func TestOwnAbsence(t *testing.T) {
	c, _ := met(t)
	if !alive(c, 0, time.Second) {
		t.Fatal(c.fail)
	}
	const woken = 10 * time.Second
	if !alive(c, woken, woken+2900*time.Millisecond) {
		t.Fatalf("after 9 s without a turn: %v", c.fail)
	}
	if alive(c, woken+2900*time.Millisecond, woken+4500*time.Millisecond) {
		t.Error("4.5 s of silence, and the peer lives")
	}
}

// TestAbsenceWhileConnecting: a sidecar that is stopped while it waits for connections
// alone, of which the deadline is the next timer, gives no peer up when it goes on: it has
// heard no peer.
func TestAbsenceWhileConnecting(t *testing.T) {
	ports := &counted{lone: lone{regions: map[link.Region][]byte{}}}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2, StartWithin: 5 * time.Second}, ports)
	if err != nil {
		t.Fatal(err)
	}
	c.at(1)
	c.channel.Reach(c.peers[1].Peer)
	next := c.Tick(2)
	if next == 0 || next > 2+int64(c.cfg.Heartbeat) {
		t.Errorf("the next tick is asked for at %v", time.Duration(next))
	}
	const woken = 10 * time.Second
	if !alive(c, woken, woken+4*time.Second) {
		t.Fatalf("after 10 s without a turn: %v", c.fail)
	}
	if alive(c, woken+4*time.Second, woken+6*time.Second) {
		t.Error("it is waited for without end")
	}
}

// TestAbsenceInParts: a sidecar that has to wait for a processor again and again, on a
// machine that has too much to do, has more patience with others there; not without end.
func TestAbsenceInParts(t *testing.T) {
	c, _ := met(t)
	next, waited := c.Tick(2), time.Duration(0)
	for ran := time.Duration(0); ran < 4*time.Second; {
		const wait = 400 * time.Millisecond
		now := next + int64(wait)
		waited += wait
		next = c.Tick(now)
		if ran = time.Duration(now) - waited; c.fail != nil {
			t.Fatalf("after %v, of which it has waited %v: %v", time.Duration(now), waited, c.fail)
		}
	}
	for range 4 {
		next = c.Tick(next + int64(400*time.Millisecond))
	}
	if c.fail == nil {
		t.Error("the peer is waited for without end")
	}
}

// TestDeadPeerIsTold: who connects when it was given up gets a greeting and an
// Abort that it can take, whatever it has received, and then the end.
func TestDeadPeerIsTold(t *testing.T) {
	for _, received := range []uint64{0, 7} {
		c, ports := met(t)
		if alive(c, 0, 5*time.Second) {
			t.Fatal("the silent peer lives")
		}
		now, ended := int64(6*time.Second), ports.disconnects
		c.LinkUp(now, 1, link.Caps{})
		ports.frames = nil
		c.Flush(now, ports)
		hear(t, c, now, received)
		hear(t, c, now, received) // whatever else it says
		c.Flush(now, ports)
		if len(ports.frames) != 2 {
			t.Fatalf("%d frames, want 2", len(ports.frames))
		}
		hello, abort := ports.frames[0].Head, &ports.frames[1]
		if hello.Type != wire.Ack || hello.Ack != 0 || abort.Head.Type != wire.Abort || abort.Head.Seq != received+1 || abort.Head.Src != 1 {
			t.Errorf("greeting %+v, abort %+v", hello, abort.Head)
		}
		if text := string(abort.Inline[:abort.Head.Length]); !strings.HasPrefix(text, "sidecar of pod 1 (rank 1) is lost: nothing heard for 4.5s") {
			t.Errorf("it is told %q", text)
		}
		if ports.disconnects != ended {
			t.Error("the connection was ended before the peer had acknowledged")
		}
		hear(t, c, now, received+1)
		if ports.disconnects != ended+1 || c.peers[1].State() != channel.Dead {
			t.Errorf("%d connections ended, state %d", ports.disconnects-ended, c.peers[1].State())
		}
		c.LinkUp(now, 1, link.Caps{}) // once more, and silent
		if alive(c, 6*time.Second, 11*time.Second); c.peers[1].State() != channel.Dead {
			t.Error("a dead peer that says nothing keeps its connection")
		}
	}
}

// TestDeniedPeerCountsToTheEnd: a dead peer that connects again and acknowledges
// frames up to the last number there is leaves no number for an Abort, and is not
// told. Its connection ends, and the sidecar goes on.
func TestDeniedPeerCountsToTheEnd(t *testing.T) {
	for _, ack := range []uint64{1 << 63, 1<<64 - 2, 1<<64 - 1} {
		c, ports := met(t)
		if alive(c, 0, 5*time.Second) {
			t.Fatal("the silent peer lives")
		}
		now, ended := int64(6*time.Second), ports.disconnects
		c.LinkUp(now, 1, link.Caps{})
		hear(t, c, now, ack)
		c.Flush(now, ports)
		c.LinkDown(now, 1, link.ErrBroken)
		if ports.disconnects != ended+1 || c.peers[1].State() != channel.Dead {
			t.Errorf("acknowledges %#x: %d connections ended, state %d", ack, ports.disconnects-ended, c.peers[1].State())
		}
	}
}
