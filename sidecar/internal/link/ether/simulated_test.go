package ether

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// simulated returns two links over a simulated network.
func simulated(t testing.TB, n *Net) (a, b *side) {
	t.Helper()
	made := [2]*side{}
	for i := range made {
		s := &side{m: linktest.NewMemory(), peer: link.Peer(1 - i)}
		cfg := config(t, link.Peer(i), true)
		cfg.Pull = true
		cfg.Clock = func() int64 { return n.Now }
		var err error
		if s.l, err = NewSimulated(cfg, s.m, n); err != nil {
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
	e, f, err := MeetSimulated(a.l, b.l, packet)
	if err != nil {
		t.Fatal(err)
	}
	x, y := loopback(t)
	if err := a.l.Join(1, x, e); err != nil {
		t.Fatal(err)
	}
	if err := b.l.Join(0, y, f); err != nil {
		t.Fatal(err)
	}
}

// step advances the time a little, or to the next event.
func step(n *Net, a, b *side, x, y *linktest.Sink) {
	if a.l.Poll(x)+b.l.Poll(y) > 0 {
		n.Now += 5_000
		return
	}
	next := n.Now + 1_000_000
	for _, s := range []*side{a, b} {
		if at := s.l.NextSimulated(); at != 0 {
			next = min(next, at)
		}
	}
	n.Now = max(next, n.Now+1000)
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
		n := &Net{
			Now: 1, Rand: r, Late: 0.05, Loss: []float64{0, 0.01, 0.05, 0.3}[r.IntN(4)], Twice: []float64{0, 0.1}[r.IntN(2)],
			Delay: []int64{1000, 50_000, 5_000_000}[r.IntN(3)], PerByte: []int64{0, 1, 100}[r.IntN(3)], Queue: []int64{1_000_000, 100_000_000}[r.IntN(2)],
		}
		a, b := simulated(t, n)
		for round := range 3 {
			meet(t, a, b, probeSizes[r.IntN(len(probeSizes))])
			forth, back := some(r, a.m), some(r, b.m)
			x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
			left, right := forth, back
			reads := someReads(t, r, a, b)
			cut := r.IntN(len(forth) + len(back))
			begun := n.Now
			for x.Frames() < len(back) || y.Frames() < len(forth) || len(x.Ends()) < len(reads) {
				n.Full = r.IntN(50) == 0
				left = left[a.l.Post(1, left):]
				right = right[b.l.Post(0, right):]
				step(n, a, b, x, y)
				if round < 2 && x.Frames()+y.Frames() > cut {
					break
				}
				if n.Now-begun > 600e9 || x.DownError() != nil || y.DownError() != nil {
					t.Fatalf("seed %d, round %d: after %d s %v, %v", seed, round, (n.Now-begun)/1e9, x, y)
				}
			}
			n.Full = false
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
				if step(n, a, b, x, y); i > 1_000_000 {
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
	if len(at.Faults()) > 0 || a.l.reads.asked != 0 || a.l.reads.pulls != 0 {
		t.Fatalf("seed %d: %v; %d bytes of credit are lost, and %d pulls counted", seed, at.Faults(), a.l.reads.asked, a.l.reads.pulls)
	}
}

// compareStart checks the frames that have arrived before a break.
func compareStart(t *testing.T, m *linktest.Memory, frames []*link.Frame, at *linktest.Sink) {
	t.Helper()
	linktest.Compare(t, m, frames[:at.Frames()], at)
}

// closeSimulated closes a link, whose time has to pass meanwhile.
func closeSimulated(t testing.TB, n *Net, s *side) {
	t.Helper()
	s.l.cfg.Clock = func() int64 { n.Now += 1_000_000; return n.Now }
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
