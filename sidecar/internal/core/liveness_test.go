package core

import (
	"strings"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// counted is a lone that counts the calls of Connect and Disconnect.
type counted struct {
	lone
	connects, disconnects int
}

func (c *counted) Connect(link.Peer)    { c.connects++ }
func (c *counted) Disconnect(link.Peer) { c.disconnects++ }

// met returns a core of pod 0 that has received a frame of pod 1 at time 1.
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

// hear delivers an acknowledgement from pod 1.
func hear(t *testing.T, c *Core, now int64, ack uint64) {
	t.Helper()
	if err := c.Deliver(now, 1, &wire.Header{Type: wire.Ack, Ack: ack, Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
}

// alive calls Tick every millisecond from one time to another, and reports whether the job has
// not failed.
func alive(c *Core, from, to time.Duration) bool {
	for now := from; now < to; now += time.Millisecond {
		c.Tick(int64(now))
	}
	c.Tick(int64(to))
	return c.fail == nil
}

// TestSilenceCountsFromTheLastFrame checks that connections on which the peer sends nothing do
// not prolong its life, and are not made again as fast as they break.
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

// TestHung checks that a silent peer whose machine answers lives for HungAfter, one whose machine
// stops to answer for no longer, and that a job that has failed waits for neither.
func TestHung(t *testing.T) {
	start := func(broken bool, answers func(link.Peer) bool) *Core {
		ports := &counted{lone: lone{regions: map[link.Region][]byte{}}}
		c, err := New(Config{Self: 0, PodOf: []int32{0, 1}, Pods: 2, HungAfter: 30 * time.Second, Answers: answers}, ports)
		if err != nil {
			t.Fatal(err)
		}
		c.LinkUp(1, 1, link.Caps{})
		if hear(t, c, 1, 0); broken {
			c.LinkDown(2, 1, link.ErrBroken)
		}
		return c
	}
	yes := func(link.Peer) bool { return true }
	for _, broken := range []bool{false, true} {
		c := start(broken, yes)
		if !alive(c, 0, 29*time.Second) {
			t.Fatalf("broken %v: %v", broken, c.fail)
		}
		if alive(c, 29*time.Second, 31*time.Second) {
			t.Errorf("broken %v: the silent peer lives after 31 s", broken)
		} else if text := c.fail.Reason; !strings.Contains(text, "nothing heard for 30s, although its machine answers") {
			t.Errorf("broken %v: %s", broken, text)
		}

		answers, asked := true, 0
		c = start(broken, func(link.Peer) bool { asked++; return answers })
		if !alive(c, 0, 10*time.Second) {
			t.Fatalf("broken %v: %v", broken, c.fail)
		}
		if answers = false; alive(c, 10*time.Second, 11*time.Second) {
			t.Errorf("broken %v: the peer lives, and its machine has not answered for a second", broken)
		}
		if asked > 20 {
			t.Errorf("broken %v: asked %d times in 11 s", broken, asked)
		}

		c = start(broken, yes)
		c.Fail(3, &Failure{Rank: 0, Code: 1})
		alive(c, 0, 5*time.Second)
		if c.peers[1].State() != channel.Dead {
			t.Errorf("broken %v: a job that has failed waits for the silent peer", broken)
		}
	}
	c := start(false, yes)
	hung := alive(c, 0, 20*time.Second)
	hear(t, c, int64(20*time.Second), 0)
	if !hung || !alive(c, 20*time.Second, 45*time.Second) || alive(c, 45*time.Second, 51*time.Second) {
		t.Errorf("the time does not count from the last frame: %v", c.fail)
	}
}

// TestOwnAbsence checks that a sidecar that was not scheduled does not count that time against
// its peers, and gives up those that stay silent when it runs again.
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

// TestAbsenceWhileConnecting: a sidecar only waits for connections, so that their deadline is
// its next timer, and is stopped meanwhile. When it goes on it gives no peer up, because it
// could not have received anything.
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

// TestAbsenceInParts: a sidecar on an overloaded machine waits for a processor again and
// again. It extends the deadlines of its peers on that account, but not without end.
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

// TestDeadPeerIsTold checks that a peer that connects after it was given up receives a
// greeting and an Abort that it can accept, whatever it has received before, and is then
// disconnected.
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
		hear(t, c, now, received) // whatever it acknowledges
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
		c.LinkUp(now, 1, link.Caps{}) // it connects once more, and sends nothing
		if alive(c, 6*time.Second, 11*time.Second); c.peers[1].State() != channel.Dead {
			t.Error("a dead peer that says nothing keeps its connection")
		}
	}
}

// TestDeniedPeerCountsToTheEnd: a dead peer connects again and acknowledges frames up to the
// highest number there is, so that no number is left for an Abort. The peer receives none, its
// connection ends, and the sidecar goes on.
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
