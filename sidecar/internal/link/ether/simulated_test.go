package ether

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// network is a simulated network between two carriers, in virtual time.
type network struct {
	now      int64
	rand     *rand.Rand
	loss     float64
	twice    float64
	delay    int64 // of a packet at least; some take up to ten times that
	rate     int64 // nanoseconds for a byte
	queue    int64 // the longest delay of a packet behind others: more are lost
	busy     [2]int64
	air      [2][]flight // to each side
	reorders bool
	full     bool // the carriers accept nothing now
}

type flight struct {
	at     int64
	packet []byte
}

// simulatedCarrier is one side of a network.
type simulatedCarrier struct {
	n    *network
	side int
	out  []arrival
}

func (c *simulatedCarrier) send(list []batch) int {
	if c.n.full {
		return 0
	}
	for _, b := range list {
		for data := b.data; len(data) > 0; {
			k := min(b.size, len(data))
			c.n.put(1-c.side, data[:k])
			data = data[k:]
		}
	}
	return len(list)
}

func (c *simulatedCarrier) sendOne(_ *address, packet []byte) error {
	c.n.put(1-c.side, packet)
	return nil
}

// put sends a packet to a side.
func (n *network) put(to int, packet []byte) {
	n.busy[to] = max(n.busy[to], n.now) + int64(len(packet))*n.rate
	if n.busy[to]-n.now > n.queue || n.rand.Float64() < n.loss {
		return
	}
	times := 1
	if n.rand.Float64() < n.twice {
		times = 2
	}
	for range times {
		at := n.busy[to] + n.delay
		if n.reorders && n.rand.IntN(20) == 0 { // it is overtaken
			at += n.rand.Int64N(9*n.delay + 1)
		}
		n.air[to] = append(n.air[to], flight{at, append([]byte(nil), packet...)})
	}
}

func (c *simulatedCarrier) receive() ([]arrival, bool) {
	c.out = c.out[:0]
	kept := c.n.air[c.side][:0]
	for _, f := range c.n.air[c.side] {
		if f.at > c.n.now {
			kept = append(kept, f)
			continue
		}
		c.out = append(c.out, arrival{data: f.packet, size: len(f.packet)})
	}
	c.n.air[c.side] = kept
	return c.out, false
}

func (c *simulatedCarrier) addressOf(netip.AddrPort) (address, error) { return address{}, nil }
func (c *simulatedCarrier) descriptor() int                           { return -1 }
func (c *simulatedCarrier) close() error                              { return nil }

// simulated returns two links over a simulated network.
func simulated(t testing.TB, n *network) (a, b *side) {
	t.Helper()
	made := [2]*side{}
	for i := range made {
		s := &side{m: linktest.NewMemory(), peer: link.Peer(1 - i)}
		cfg := config(t, link.Peer(i), true)
		cfg.Pull = true
		cfg.Clock = func() int64 { return n.now }
		s.l = newLink(cfg, s.m)
		s.l.out.carrier = &simulatedCarrier{n: n, side: i}
		if err := s.l.sleeper.open(cfg.Stream.FD()); err != nil {
			t.Fatal(err)
		}
		s.l.SetMemory(s.m)
		made[i] = s
	}
	return made[0], made[1]
}

// meet connects two links over a simulated network, without probes.
func meet(t testing.TB, a, b *side, packet int) {
	t.Helper()
	e, f := a.l.Prepare(1), b.l.Prepare(0)
	if _, err := e.accept(f.Offer()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.accept(e.Offer()); err != nil {
		t.Fatal(err)
	}
	e.sized(packet)
	f.sized(packet)
	x, y := loopback(t)
	if err := a.l.Join(1, x, e); err != nil {
		t.Fatal(err)
	}
	if err := b.l.Join(0, y, f); err != nil {
		t.Fatal(err)
	}
}

// step advances the time a little, or to the next event.
func (n *network) step(a, b *side, x, y *linktest.Sink) {
	if a.l.Poll(x)+b.l.Poll(y) > 0 {
		n.now += 5_000
		return
	}
	next := n.now + 1_000_000
	for _, at := range []int64{a.l.next, b.l.next} {
		if at > n.now {
			next = min(next, at)
		}
	}
	for _, air := range n.air {
		for _, f := range air {
			if f.at > n.now {
				next = min(next, f.at)
			}
		}
	}
	n.now = max(next, n.now+1000)
}

// TestSimulatedNetwork sends frames of all sizes in both directions over networks that lose,
// repeat, delay and reorder packets, by seed, while carriers are full and connections break,
// and checks that each connection delivers whole frames in order until its end, and the last
// one all.
func TestSimulatedNetwork(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 20
	}
	var lost, repeated, again uint64
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(4, seed))
		n := &network{
			now: 1, rand: r, reorders: true, loss: []float64{0, 0.01, 0.05, 0.3}[r.IntN(4)], twice: []float64{0, 0.1}[r.IntN(2)],
			delay: []int64{1000, 50_000, 5_000_000}[r.IntN(3)], rate: []int64{0, 1, 100}[r.IntN(3)], queue: []int64{1_000_000, 100_000_000}[r.IntN(2)],
		}
		a, b := simulated(t, n)
		for round := range 3 {
			meet(t, a, b, probeSizes[r.IntN(len(probeSizes))])
			forth, back := some(r, a.m), some(r, b.m)
			x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
			left, right := forth, back
			reads := someReads(t, r, a, b)
			cut := r.IntN(len(forth) + len(back))
			begun := n.now
			for x.Frames() < len(back) || y.Frames() < len(forth) || len(x.Ends()) < len(reads) {
				n.full = r.IntN(50) == 0
				left = left[a.l.Post(1, left):]
				right = right[b.l.Post(0, right):]
				n.step(a, b, x, y)
				if round < 2 && x.Frames()+y.Frames() > cut {
					break
				}
				if n.now-begun > 600e9 || x.DownError() != nil || y.DownError() != nil {
					t.Fatalf("seed %d, round %d: after %d s %v, %v", seed, round, (n.now-begun)/1e9, x, y)
				}
			}
			n.full = false
			if round == 2 {
				linktest.Compare(t, a.m, forth, y)
				linktest.Compare(t, b.m, back, x)
				checkReads(t, seed, reads, a, b, x, true)
				break
			}
			compareStart(t, a.m, forth, y)
			compareStart(t, b.m, back, x)
			a.l.Break(1)
			for i := 0; x.DownError() == nil || y.DownError() == nil || len(x.Ends()) < len(reads); i++ {
				if n.step(a, b, x, y); i > 1_000_000 {
					t.Fatalf("seed %d: the break is not noticed: %v, %v", seed, x, y)
				}
			}
			checkReads(t, seed, reads, a, b, x, false)
		}
		again += a.l.stats.AskedAgain
		lost, repeated = lost+a.l.stats.Lost+b.l.stats.Lost, repeated+a.l.stats.Repeated+b.l.stats.Repeated
		for _, s := range []*side{a, b} {
			if s.l.bodies.in.used != 0 {
				t.Errorf("seed %d: %d bytes wait at the end", seed, s.l.bodies.in.used)
			}
			closeSimulated(t, n, s)
		}
	}
	if lost == 0 || repeated == 0 || again == 0 {
		t.Errorf("%d packets were sent again, %d had come already, %d blocks were asked for again: want some of each", lost, repeated, again)
	}
}

// read is a remote read.
type read struct {
	dst, src link.Ref
	key      link.Key
}

// someReads starts up to six reads from b's memory into a's.
func someReads(t *testing.T, r *rand.Rand, a, b *side) []read {
	t.Helper()
	list := make([]read, r.IntN(7))
	for i := range list {
		n := 1 + r.IntN(300_000)
		x := read{dst: a.m.NewRegion(n), src: b.m.Fill(n, uint64(i))}
		var err error
		if x.key, err = b.l.Register(x.src); err != nil {
			t.Fatal(err)
		}
		if err := a.l.Read(1, uint64(i), x.dst, x.key); err != nil {
			t.Fatal(err)
		}
		list[i] = x
	}
	return list
}

// checkReads checks that each read has ended once, and has the right bytes if it has ended
// without an error, as all have.
func checkReads(t *testing.T, seed uint64, list []read, a, b *side, at *linktest.Sink, all bool) {
	t.Helper()
	for i, x := range list {
		err, ended := at.Ends()[uint64(i)]
		if !ended || err != nil && (all || !errors.Is(err, link.ErrBroken)) {
			t.Fatalf("seed %d: read %d has ended: %v, %v", seed, i, ended, err)
		}
		if err == nil && !bytes.Equal(a.m.Bytes(x.dst), b.m.Bytes(x.src)) {
			t.Fatalf("seed %d: read %d brought other bytes", seed, i)
		}
		b.l.Deregister(x.key)
	}
	if len(at.Faults()) > 0 || a.l.reads.asked != 0 {
		t.Fatalf("seed %d: %v; %d bytes of credit are lost", seed, at.Faults(), a.l.reads.asked)
	}
}

// compareStart checks the frames that have arrived before a break.
func compareStart(t *testing.T, m *linktest.Memory, frames []*link.Frame, at *linktest.Sink) {
	t.Helper()
	linktest.Compare(t, m, frames[:at.Frames()], at)
}

// closeSimulated closes a link, whose time has to pass meanwhile.
func closeSimulated(t *testing.T, n *network, s *side) {
	t.Helper()
	s.l.cfg.Clock = func() int64 { n.now += 1_000_000; return n.now }
	if err := s.l.Close(); err != nil {
		t.Error(err)
	}
	if u := s.l.bodies.out.used; u != 0 {
		t.Errorf("%d bytes of packets are left", u)
	}
}

// some returns up to 200 frames.
func some(r *rand.Rand, m *linktest.Memory) []*link.Frame {
	frames := make([]*link.Frame, 1+r.IntN(200))
	for i := range frames {
		n := r.IntN(3000)
		if r.IntN(20) == 0 {
			n = r.IntN(100_000)
		}
		frames[i] = &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(i + 1), Tag: uint64(i), Length: uint32(n)}}
		if n > 0 {
			frames[i].Payload = m.Fill(n, uint64(i))
		}
	}
	return frames
}
