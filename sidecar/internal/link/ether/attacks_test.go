package ether

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// TestReplayWords replays counters that share a word of the window with the newest one.
func TestReplayWords(t *testing.T) {
	var r replay
	for c := uint64(1); c <= 1024; c++ {
		if r.seen(c) {
			t.Fatalf("counter %d is refused", c)
		}
		r.add(c)
	}
	again := 0
	for c := uint64(1); c <= 1024; c++ {
		if !r.seen(c) {
			again++
		}
	}
	if again > 0 {
		t.Errorf("%d counters of 1024 are accepted a second time", again)
	}
	var s replay
	for c := uint64(1); c <= 1024; c++ {
		if c != 5 {
			s.add(c)
		}
	}
	s.add(5) // late
	if s.seen(1029) {
		t.Error("counter 1029, which has never come, is taken for a copy")
	}
}

// quiet returns a simulated network without losses.
func quiet() *Net {
	return &Net{Now: 1, Rand: rand.New(rand.NewPCG(1, 1)), Delay: 50_000, Queue: 100_000_000}
}

// TestEchoIsChecked lets the peer say that a probe of few bytes has come: packets would have
// no room for a frame.
func TestEchoIsChecked(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	e, f := a.l.Prepare(1), b.l.Prepare(0)
	if _, err := e.accept(f.Offer()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.accept(e.Offer()); err != nil {
		t.Fatal(err)
	}
	body := []byte{headBytes + tagBytes, 0, 0, 0}
	p := f.c.tx.seal(make([]byte, 0, 100), kindEcho, f.c.remote, body)
	n.put(0, p)
	n.Now += 1_000_000
	a.l.Poll(linktest.NewSink(a.m))
	if got := e.size(); got != 0 {
		t.Errorf("the peer says that a probe of %d bytes has come, which was not sent", got)
	}
}

// TestClosedEndpoint closes Endpoints for which packets have come.
func TestClosedEndpoint(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	sink := linktest.NewSink(a.m)
	for i := range 50 {
		e, f := a.l.Prepare(1), b.l.Prepare(0)
		if _, err := e.accept(f.Offer()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.accept(e.Offer()); err != nil {
			t.Fatal(err)
		}
		for number := uint64(2); number < 33; number++ {
			body := make([]byte, prefixBytes+1)
			putPrefix(body, number, 1, 0, 257, 1400)
			n.put(0, f.c.tx.seal(make([]byte, 0, 200), kindStream, f.c.remote, body))
		}
		if i == 0 { // a body that is too short
			n.put(0, f.c.tx.seal(make([]byte, 0, 200), kindStream, f.c.remote, make([]byte, 3)))
		}
		n.Now += 10_000_000
		a.l.Poll(sink)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a.l.Poll(sink)
	if u := a.l.bodies.in.used; u != 0 || a.l.bodies.in.full() {
		t.Errorf("without any connection %d bytes are used, full: %v", u, a.l.bodies.in.full())
	}
	if a.l.failed != 0 || a.l.Arm() {
		t.Errorf("without any connection %d have failed, and the engine never sleeps", a.l.failed)
	}
}

// frames returns frames of n bytes.
func framesOf(m *linktest.Memory, count, n, seq int) (l []*link.Frame) {
	for i := range count {
		l = append(l, &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(seq + i), Length: uint32(n)}, Payload: m.Fill(n, uint64(i))})
	}
	return l
}

// TestLimitIsAskedFor loses the packet that says that there is room again.
func TestLimitIsAskedFor(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
	c := a.l.conns[1]
	c.pipe.waiting = true // the socket is slow
	left := append(framesOf(a.m, 1, 100_000, 1), framesOf(a.m, 400, 1300, 2)...)
	for range 3000 {
		left = left[a.l.Post(1, left):]
		step(n, a, b, x, y)
	}
	c.pipe.waiting = false
	c.touch()
	a.l.commit()
	for i := 0; y.Frames() < 200 && i < 1000; i++ {
		n.Loss = 1
		b.l.Poll(y)
	}
	n.Loss = 0
	begun := n.Now
	for range 100_000 {
		step(n, a, b, x, y)
	}
	if y.Frames() != 401 || len(left) > 0 {
		t.Errorf("after %d s %d of 401 frames have come; base %d next %d end %d limit %d, timeout %d", (n.Now-begun)/1e9, y.Frames(), c.snd.base, c.snd.next, c.snd.end, c.snd.limit, c.snd.timeout())
	}
}

// TestBursts sends single flights over a bad network, as the engine does.
func TestBursts(t *testing.T) {
	hangs := 0
	const seeds = 30
	for seed := range uint64(seeds) {
		n := quiet()
		n.Rand, n.Loss = rand.New(rand.NewPCG(9, seed)), 0.1
		a, b := simulated(t, n)
		meet(t, a, b, 1452)
		x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
		c := a.l.conns[1]
		total := 0
		for round := 0; round < 50 && hangs == 0; round++ {
			k := 1 + n.Rand.IntN(40)
			left := framesOf(a.m, k, 1300, total+1)
			total += k
			begun := n.Now
			for y.Frames() < total && n.Now-begun < 30e9 && x.DownError() == nil && y.DownError() == nil {
				left = left[a.l.Post(1, left):]
				a.l.commit()
				step(n, a, b, x, y)
			}
			if x.DownError() != nil || y.DownError() != nil {
				break
			}
			if y.Frames() < total {
				hangs++
				t.Errorf("seed %d round %d: after 30 s %d of %d frames; base %d next %d end %d, timed %v dirty %v, timeout %d, now %d, link's next %d", seed, round, y.Frames(), total, c.snd.base, c.snd.next, c.snd.end, c.timed, c.dirty, c.snd.timeout(), n.Now, a.l.next)
			}
		}
		closeSimulated(t, n, a)
		closeSimulated(t, n, b)
		if hangs > 0 {
			break
		}
	}
}

// TestTimerOfLastPacket shows the sequence: the timer's tick comes between an acknowledgement
// of all and the next flight, which is lost.
func TestTimerOfLastPacket(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
	a.l.Post(1, framesOf(a.m, 17, 1300, 1)) // 16 are sent at once, one waits for the window
	a.l.commit()
	n.Now += 1_000_000
	b.l.Poll(y) // acknowledges 16
	n.Now = max(n.Now+1_000_000, a.l.next)
	n.Loss = 1
	a.l.Poll(x) // acknowledgement, tick, and packet 17, which is lost
	n.Loss = 0
	begun := n.Now
	for range 100_000 {
		step(n, a, b, x, y)
	}
	if y.Frames() != 17 {
		t.Errorf("after %d s %d of 17 frames have come", (n.Now-begun)/1e9, y.Frames())
	}
}

// TestHangUpDelivers ends a connection whose frames are acknowledged, behind a payload whose
// last bytes and the end of the socket come between the read of Poll and epoll_wait.
func TestHangUpDelivers(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
	c := a.l.conns[1]
	c.pipe.waiting = true // the payload is late
	a.l.Post(1, append(framesOf(a.m, 1, 10_000, 1), framesOf(a.m, 1, 100, 2)...))
	for range 1000 {
		step(n, a, b, x, y)
	}
	c.flush()
	a.l.Forget(1)
	b.l.pollSockets(y)
	for i := 0; i < 1000 && y.DownError() == nil; i++ {
		step(n, a, b, x, y)
	}
	if y.Frames() != 2 {
		t.Errorf("%d of 2 acknowledged frames have come before the end: %v", y.Frames(), y)
	}
}

// TestHangUpDrains ends a connection whose last packet is the last one of a full ring, behind
// packets of strangers, and checks that its frame is handed over before the end, that a peer
// that goes on to send does not hold the engine, and that one that is quiet costs few calls.
func TestHangUpDrains(t *testing.T) {
	for _, c := range []struct{ calls, most int }{{65, 65}, {1, 2}, {1 << 30, 65}} {
		n := quiet()
		a, b := simulated(t, n)
		meet(t, a, b, 1452)
		x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
		step(n, a, b, x, y)
		a.l.Post(1, framesOf(a.m, 1, 100, 1))
		a.l.commit()
		n.Now += 10 * n.Delay
		b.l.now = n.Now
		q := &queued{carrier: b.l.out.carrier, left: c.calls - 1}
		b.l.out.carrier = q
		b.l.hangUp(b.l.conns[0], y)
		if want := min(1, max(65-c.calls+1, 0)); y.Frames() != want || q.calls > c.most {
			t.Errorf("%d calls take the ring: %d were made, and %d frames have come, want %d", c.calls, q.calls, y.Frames(), want)
		}
	}
}

// queued is a carrier of a ring that 65 calls empty, and whose packets come behind those of
// strangers.
type queued struct {
	carrier
	left, calls int
}

func (c *queued) full() int { return 65 }

func (c *queued) receive() ([]arrival, bool) {
	if c.calls++; c.left > 0 {
		c.left--
		return []arrival{{data: make([]byte, 100), size: 100}}, true
	}
	return c.carrier.receive()
}

// TestDroppedAtTheEnd checks that the packets which the kernel drops until the end are in the
// counters of the path, and in the last line of the log, and that a carrier that is closed is not
// asked.
func TestDroppedAtTheEnd(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	var log bytes.Buffer
	a.l.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	meet(t, a, b, 1452)
	d := &dropping{carrier: a.l.out.carrier, drops: 3}
	a.l.out.carrier = d
	if got := a.l.Paths()[0].Dropped; got != 3 {
		t.Errorf("the path counts %d packets, want 3", got)
	}
	d.drops = 4
	closeSimulated(t, n, a)
	if !strings.Contains(log.String(), " dropped=7 ") {
		t.Errorf("the log does not count 7 packets: %s", log.String())
	}
	d.drops = 5
	if got := a.l.Paths()[0].Dropped; got != 7 {
		t.Errorf("the path counts %d packets after the end, want 7", got)
	}
	closeSimulated(t, n, b)
}

// dropping is a carrier whose kernel drops packets.
type dropping struct {
	carrier
	drops uint64
}

func (c *dropping) dropped() uint64 {
	n := c.drops
	c.drops = 0
	return n
}

// TestPayloadsOfAPoll counts the bytes of payloads that one Poll reads.
func TestPayloadsOfAPoll(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 8952)
	x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
	left := framesOf(a.m, 200, 60_000, 1)
	for range 300 {
		left = left[a.l.Post(1, left):]
		a.l.Poll(x)
		n.Now += 10_000
	}
	c := b.l.conns[0]
	b.l.Poll(y)
	if c.pipe.in > 512<<10 {
		t.Errorf("one Poll has read %d bytes of payloads of one peer, over TCP at most %d", c.pipe.in, 512<<10)
	}
}

// TestNumbersWrap sends over the wrap of the numbers.
func TestNumbersWrap(t *testing.T) {
	n := quiet()
	n.Loss, n.Twice = 0.1, 0.1
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	for _, c := range []*conn{a.l.conns[1], b.l.conns[0]} {
		const at = 1<<32 - 150
		s, r := &c.snd, &c.rcv
		s.base, s.next, s.end, s.limit = at, at, at, at+limitFirst
		r.next, r.known, r.end, r.said = at, at, at+limitFirst, at+limitFirst
	}
	x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
	forth, back := framesOf(a.m, 600, 1300, 1), framesOf(b.m, 600, 1300, 1)
	left, right := forth, back
	for i := 0; i < 1_000_000 && (y.Frames() < 600 || x.Frames() < 600); i++ {
		left = left[a.l.Post(1, left):]
		right = right[b.l.Post(0, right):]
		step(n, a, b, x, y)
	}
	linktest.Compare(t, a.m, forth, y)
	linktest.Compare(t, b.m, back, x)
}

// TestFirstTimer sends 17 packets on new connections whose round trip is rtoFirst.
func TestFirstTimer(t *testing.T) {
	for seed := range uint64(30) {
		n := quiet()
		n.Rand, n.Loss, n.Delay = rand.New(rand.NewPCG(10, seed)), 0.2, 25_000_000
		a, b := simulated(t, n)
		meet(t, a, b, 1452)
		x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
		c := a.l.conns[1]
		left := framesOf(a.m, 17, 1300, 1)
		for y.Frames() < 17 && n.Now < 60e9 && x.DownError() == nil && y.DownError() == nil {
			left = left[a.l.Post(1, left):]
			a.l.commit()
			step(n, a, b, x, y)
		}
		if y.Frames() < 17 {
			t.Errorf("seed %d: %d of 17 frames, %v, %v; base %d next %d end %d timed %v timeout %d, now %d", seed, y.Frames(), x.DownError(), y.DownError(), c.snd.base, c.snd.next, c.snd.end, c.timed, c.snd.timeout(), n.Now)
		}
		closeSimulated(t, n, a)
		closeSimulated(t, n, b)
	}
}

// TestMemoryOfAPeer sends to a peer that does not acknowledge, and expects that others have
// memory.
func TestMemoryOfAPeer(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	n.Loss = 1
	posted := 0
	one := framesOf(a.m, 1, 1300, 1)
	for posted < 100_000 {
		if a.l.Post(1, one) == 0 {
			break
		}
		posted++
	}
	if u := a.l.bodies.out.used; u > queueBytes+bodyMost || posted == 0 {
		t.Errorf("a peer may use %d bytes, and uses %d", queueBytes, u)
	}
	a.l.bodies.out.used = 1 << 40 // other peers use all
	c := a.l.conns[1]
	c.snd.drop(&a.l.bodies)
	if n := a.l.Post(1, one); n != 1 {
		t.Error("a peer with nothing under way has no memory for a packet")
	}
	a.l.bodies.out.used = 0 // Close releases what is left
}

// TestSlowPayload sends more small frames behind a slow payload than the receiver keeps.
func TestSlowPayload(t *testing.T) {
	for _, stall := range []int64{50e6, 12e9} {
		n := quiet()
		a, b := simulated(t, n)
		meet(t, a, b, 8952)
		x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
		c := a.l.conns[1]
		c.pipe.waiting = true // the socket is slow
		left := append(framesOf(a.m, 1, 100_000, 1), framesOf(a.m, 1400, 1300, 2)...)
		for n.Now < stall {
			left = left[a.l.Post(1, left):]
			step(n, a, b, x, y)
		}
		if x.DownError() != nil {
			t.Errorf("a connection over a network without losses, whose peer acknowledges, is broken: %v", x.DownError())
			continue
		}
		c.pipe.waiting = false
		c.touch()
		for i := 0; i < 200_000 && y.Frames() < 1401; i++ {
			left = left[a.l.Post(1, left):]
			step(n, a, b, x, y)
		}
		if a.l.stats.Lost > 0 {
			t.Errorf("the network loses nothing, and %d packets were sent again", a.l.stats.Lost)
		}
	}
}
