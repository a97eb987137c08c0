package ether

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/tcp"
)

// several returns count simulated links of one job, all connected to link 0.
func several(t testing.TB, n *Net, count, packet int) []*side {
	t.Helper()
	var list []*side
	for i := range count {
		s := &side{m: linktest.NewMemory()}
		cfg := config(t, link.Peer(i), true)
		cfg.Pull, cfg.Peers = true, count
		cfg.Clock = func() int64 { return n.Now }
		var err error
		if cfg.Stream, err = tcp.New(nil, count); err != nil {
			t.Fatal(err)
		}
		if s.l, err = NewSimulated(cfg, s.m, n); err != nil {
			t.Fatal(err)
		}
		s.l.SetMemory(s.m)
		list = append(list, s)
	}
	for i, s := range list[1:] {
		e, f, err := MeetSimulated(list[0].l, s.l, packet)
		if err != nil {
			t.Fatal(err)
		}
		x, y := loopback(t)
		if err := list[0].l.Join(link.Peer(i+1), x, e); err != nil {
			t.Fatal(err)
		}
		if err := s.l.Join(0, y, f); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// narrow is a carrier whose socket takes room bytes, and drains at a rate.
type narrow struct {
	carrier
	n          *Net
	room, inIt int
	perMicro   int
	at         int64
}

func (c *narrow) send(list []batch) int {
	c.inIt = max(0, c.inIt-int((c.n.Now-c.at)/1000)*c.perMicro)
	c.at = c.n.Now
	for i := range list {
		if c.inIt+len(list[i].data) > c.room {
			return i
		}
		c.inIt += len(list[i].data)
		c.carrier.send(list[i : i+1])
	}
	return len(list)
}

// TestBusyPeerDelaysNoOther checks that a frame for a peer is sent soon while frames for
// another one, or its pulls, keep the carrier full.
func TestBusyPeerDelaysNoOther(t *testing.T) {
	for name, pull := range map[string]bool{"frames": false, "pull": true} {
		t.Run(name, func(t *testing.T) {
			n := &Net{Now: 1, Rand: rand.New(rand.NewPCG(1, 1)), Delay: 20_000, Queue: 1e9}
			s := several(t, n, 3, 8952)
			// SO_SNDBUF with the default net.core.wmem_max; 1 Gbit/s.
			s[0].l.out.carrier = &narrow{carrier: s[0].l.out.carrier, n: n, room: 212992, perMicro: 125, at: n.Now}
			x, y, z := linktest.NewSink(s[0].m), linktest.NewSink(s[1].m), linktest.NewSink(s[2].m)
			big := framesOf(s[0].m, 100, 8000, 1)
			var key link.Key
			dst := s[1].m.NewRegion(4 << 20)
			if pull {
				s[1].l.reads.credit = creditMost // net.core.rmem_max is larger there
				key, _ = s[0].l.Register(s[0].m.Fill(4<<20, 1))
			}
			begun, posted, reads := n.Now, false, 0
			var at int64
			step := func() {
				if pull {
					for reads < len(y.Ends())+5 {
						if err := s[1].l.Read(0, uint64(reads), dst, key); err != nil {
							t.Fatal(err)
						}
						reads++
					}
				} else {
					s[0].l.Post(1, big)
				}
				for i, k := range []*linktest.Sink{x, y, z} {
					s[i].l.Poll(k)
				}
				n.Now += 10_000
			}
			for n.Now-begun < 3e9 {
				step()
				if !posted && n.Now-begun > 5e8 {
					posted, at = true, n.Now
					s[0].l.Post(2, framesOf(s[0].m, 1, 100, 1))
				}
				if posted && z.Frames() == 1 {
					t.Logf("came after %.1f ms", float64(n.Now-at)/1e6)
					break
				}
			}
			t.Logf("peer 1 got %d frames, %d reads", y.Frames(), len(y.Ends()))
			if z.Frames() == 0 {
				t.Error("a frame of 100 bytes for another peer was not sent within 2.5 s")
			}
			s[0].l.out.carrier.(*narrow).room = 1 << 30
			for _, q := range s {
				closeSimulated(t, n, q)
			}
		})
	}
}

// TestFrozenPeerHoldsNoCredit checks that a read from a peer ends while another peer does not
// answer.
func TestFrozenPeerHoldsNoCredit(t *testing.T) {
	n := &Net{Now: 1, Rand: rand.New(rand.NewPCG(1, 1)), Delay: 20_000, Queue: 1e9}
	s := several(t, n, 3, 1452)
	s[0].l.reads.credit = 106496 // a quarter of SO_RCVBUF with the default net.core.rmem_max
	x, z := linktest.NewSink(s[0].m), linktest.NewSink(s[2].m)
	k1, _ := s[1].l.Register(s[1].m.Fill(1<<20, 1))
	k2, _ := s[2].l.Register(s[2].m.Fill(1<<20, 1))
	for p, k := range []link.Key{1: k1, 2: k2} {
		if p > 0 {
			if err := s[0].l.Read(link.Peer(p), uint64(p), s[0].m.NewRegion(1<<20), k); err != nil {
				t.Fatal(err)
			}
		}
	}
	begun := n.Now
	for n.Now-begun < 9e9 { // pod 1 is frozen
		s[0].l.Poll(x)
		s[2].l.Poll(z)
		n.Now += 20_000
		if len(x.Ends()) > 0 {
			break
		}
	}
	if len(x.Ends()) == 0 {
		t.Errorf("a read of 1 MiB from pod 2 has not ended within %d s, because pod 1 is frozen; %d bytes came", (n.Now-begun)/1e9, s[0].l.stats.PulledBytes)
	}
}

// TestForgetBeforeArm checks that the engine does not sleep before the end of a read is
// reported.
func TestForgetBeforeArm(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	x := linktest.NewSink(a.m)
	k, _ := b.l.Register(b.m.Fill(100_000, 1))
	if err := a.l.Read(1, 7, a.m.NewRegion(100_000), k); err != nil {
		t.Fatal(err)
	}
	a.l.Poll(x)
	a.l.Forget(1)
	if !a.l.Arm() && len(x.Ends()) == 0 {
		t.Logf("timer %d, now %d", a.l.next, n.Now)
		t.Error("the engine sleeps, and the end of a read is not reported")
	}
}

// TestReadBeforeArm checks that a read is asked for before the engine sleeps.
func TestReadBeforeArm(t *testing.T) {
	n := quiet()
	a, b := simulated(t, n)
	meet(t, a, b, 1452)
	x := linktest.NewSink(a.m)
	k, _ := b.l.Register(b.m.Fill(100_000, 1))
	a.l.Poll(x)
	if err := a.l.Read(1, 7, a.m.NewRegion(100_000), k); err != nil {
		t.Fatal(err)
	}
	if !a.l.Arm() && a.l.next == 0 && a.l.stats.PacketsOut == 0 {
		t.Error("the engine sleeps, and a read is not asked for")
	}
}

// TestAcknowledgementsOfAPuller checks that the frames of a peer that pulls all the time are
// acknowledged.
func TestAcknowledgementsOfAPuller(t *testing.T) {
	n := &Net{Now: 1, Rand: rand.New(rand.NewPCG(1, 1)), Delay: 20_000, Queue: 1e9}
	s := several(t, n, 2, 8952)
	s[0].l.out.carrier = &narrow{carrier: s[0].l.out.carrier, n: n, room: 65536, perMicro: 12, at: n.Now} // 100 Mbit/s
	x, y := linktest.NewSink(s[0].m), linktest.NewSink(s[1].m)
	dst := s[1].m.NewRegion(4 << 20)
	s[1].l.reads.credit = creditMost
	key, _ := s[0].l.Register(s[0].m.Fill(4<<20, 1))
	reads, posted := 0, 0
	var told uint64
	var last, worst int64 = n.Now, 0
	for n.Now < 30e9 && y.DownError() == nil && x.DownError() == nil {
		for reads < len(y.Ends())+8 {
			if err := s[1].l.Read(0, uint64(reads), dst, key); err != nil {
				t.Fatal(err)
			}
			reads++
		}
		if c := s[1].l.conns[0]; c != nil {
			if c.snd.base != told || c.snd.idle() {
				told, last = c.snd.base, n.Now
			}
			worst = max(worst, n.Now-last)
			if c.snd.idle() && n.Now > 2e9 {
				posted += s[1].l.Post(0, framesOf(s[1].m, 1, 100, posted+1))
			}
		}
		s[0].l.Poll(x)
		s[1].l.Poll(y)
		n.Now += 50_000
	}
	t.Logf("%d reads, %d frames posted, %d came, %d sent again; the longest wait for an acknowledgement %d ms, at %d s; ends %v %v", len(y.Ends()), posted, x.Frames(), s[1].l.stats.Lost, worst/1e6, n.Now/1e9, x.DownError(), y.DownError())
	if worst > 100e6 {
		t.Error("acknowledgements wait behind answers")
	}
}

// TestAcknowledgementsOfTwoPullers checks the same of one of two such peers. The socket's
// buffer is that of the default net.core.wmem_max, which the kernel doubles.
func TestAcknowledgementsOfTwoPullers(t *testing.T) {
	n := &Net{Now: 1, Rand: rand.New(rand.NewPCG(1, 1)), Delay: 20_000, Queue: 1e9}
	s := several(t, n, 3, 8952)
	s[0].l.out.carrier = &narrow{carrier: s[0].l.out.carrier, n: n, room: 425984, perMicro: 125, at: n.Now} // 1 Gbit/s
	sinks := []*linktest.Sink{linktest.NewSink(s[0].m), linktest.NewSink(s[1].m), linktest.NewSink(s[2].m)}
	x, y := sinks[0], sinks[1]
	dst := []link.Ref{{}, s[1].m.NewRegion(1 << 20), s[2].m.NewRegion(1 << 20)}
	key, _ := s[0].l.Register(s[0].m.Fill(1<<20, 1))
	reads, posted := [3]int{}, 0
	var told uint64
	var last, worst int64 = n.Now, 0
	for n.Now < 20e9 && y.DownError() == nil && x.DownError() == nil {
		for i := 1; i < 3; i++ {
			s[i].l.reads.credit = creditMost
			for reads[i] < len(sinks[i].Ends())+8 {
				if err := s[i].l.Read(0, uint64(reads[i]), dst[i], key); err != nil {
					t.Fatal(err)
				}
				reads[i]++
			}
		}
		if c := s[1].l.conns[0]; c != nil {
			if c.snd.base != told || c.snd.idle() {
				told, last = c.snd.base, n.Now
			}
			worst = max(worst, n.Now-last)
			if c.snd.idle() && n.Now > 1e9 {
				posted += s[1].l.Post(0, framesOf(s[1].m, 1, 100, posted+1))
			}
		}
		for i, q := range s {
			q.l.Poll(sinks[i])
		}
		n.Now += 20_000
	}
	t.Logf("%v reads, %d frames posted, %d came, %d sent again; the longest wait for an acknowledgement %d ms, at %d s; ends %v %v", reads, posted, x.Frames(), s[1].l.stats.Lost, worst/1e6, n.Now/1e9, x.DownError(), y.DownError())
	if worst > 100e6 {
		t.Error("acknowledgements wait behind answers")
	}
}

// TestCreditCountsSlots reads from many peers whose packets are smaller than the slots of this
// side's ring, and checks that no more fragments are asked for than slots are granted, that
// reads end while some peers are frozen, and that no credit is lost.
func TestCreditCountsSlots(t *testing.T) {
	const peers, slots, size = 8, 128, 256 << 10
	n := &Net{Now: 1, Rand: rand.New(rand.NewPCG(1, 1)), Delay: 20_000, Queue: 1e9, Loss: 0.02}
	s := several(t, n, 1+peers, 1402)
	r := &s[0].l.reads
	r.slot, r.credit = bodyMost, slots*bodyMost
	sinks := make([]*linktest.Sink, len(s))
	for i, q := range s {
		sinks[i] = linktest.NewSink(q.m)
		if i == 0 {
			continue
		}
		key, err := q.l.Register(q.m.Fill(size, uint64(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s[0].l.Read(link.Peer(i), uint64(i), s[0].m.NewRegion(size), key); err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	for begun := n.Now; len(sinks[0].Ends()) < peers && n.Now-begun < 60e9; n.Now += 50_000 {
		for i, q := range s {
			if frozen := i > peers/2 && n.Now-begun < 1e9; !frozen {
				q.l.Poll(sinks[i])
			}
		}
		asked := 0
		for _, c := range s[0].l.list {
			if !c.pulls.silent {
				asked += fragmentsOf(&c.pulls)
			}
		}
		most = max(most, asked)
	}
	if most > slots || most < slots/2 {
		t.Errorf("%d fragments were under way at once, want at most %d and most of them", most, slots)
	}
	for token, err := range sinks[0].Ends() {
		if err != nil {
			t.Errorf("read %d ended with %v", token, err)
		}
	}
	if len(sinks[0].Ends()) < peers || r.asked != 0 {
		t.Errorf("%d of %d reads have ended, and %d of the credit are in use", len(sinks[0].Ends()), peers, r.asked)
	}
}

// fragmentsOf returns how many fragments have been asked for and have not come.
func fragmentsOf(q *puller) (n int) {
	for _, p := range q.list {
		for i := range p.blocks {
			n += bits.OnesCount64(p.blocks[i].missing)
		}
	}
	return n
}
