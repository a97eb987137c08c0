package virtual

import (
	"bytes"
	"math"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/gather"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/platform"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// plain returns a machine with round numbers.
func plain() *platform.Model {
	c := platform.Curve{{Bytes: 0, NS: 0}, {Bytes: 1000, NS: 500}}
	return &platform.Model{
		Copy: platform.Copies{Write: c, Send: c, OneSided: c}, Lookup: 10, Register: platform.Curve{{Bytes: 4096, NS: 20_000}},
		SendCPU: 100, RecvCPU: 200, Latency: 1000, PerByte: 1,
	}
}

func run(t testing.TB, cfg Config, program func(*Rank)) *World {
	t.Helper()
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := w.Run(program); err != nil {
		t.Fatal(err)
	}
	return w
}

func caps() link.Caps { return link.Caps{Name: "virtual", GatherMax: 1, EagerMax: 64 << 10} }

// pingPong returns half the round trip of n bytes after a few rounds of warm-up.
func pingPong(t *testing.T, cfg Config, n, rounds int) (half float64, w *World) {
	t.Helper()
	cfg.PodOf = []int32{0, 1}
	w = run(t, cfg, func(r *Rank) {
		other := 1 - r.Number
		for i := range rounds {
			if i == rounds/2 && r.Number == 0 {
				half = r.Now()
			}
			in := r.Recv(other, 1, 1<<20, n)
			if r.Number == 0 {
				r.Wait(r.Send(other, 1, 0, n), in)
			} else {
				r.Wait(in)
				r.Wait(r.Send(other, 1, 0, n))
			}
		}
		if r.Number == 0 {
			half = (r.Now() - half) / float64(rounds-rounds/2) / 2
		}
	})
	return half, w
}

// TestPingPong checks that a message takes the sum of the model's parts and, when its buffer is
// registered, a look-up instead of the sender's copy.
func TestPingPong(t *testing.T) {
	const n = 2000
	copied, _ := pingPong(t, Config{Model: plain(), Caps: caps()}, n, 400)
	want := 100 + 1000.0 + 200 + 1000 + 64 + n + 1000 // overheads, copies, wire
	if math.Abs(copied-want) > 0.01*want {
		t.Errorf("half a round trip takes %v ns, want %v", copied, want)
	}
	gathered, w := pingPong(t, Config{Model: plain(), Caps: caps(), Gather: &gather.Config{}}, n, 400)
	if want -= 1000 - 10; math.Abs(gathered-want) > 0.01*want {
		t.Errorf("half a round trip takes %v ns without the copy, want %v", gathered, want)
	}
	if c := w.Counts(); c.Seen != 2 || c.Registered != 2 || c.GatheredBytes < c.CopiedBytes {
		t.Errorf("%+v", c)
	}
}

// TestRepeats checks that the same job takes exactly the same time.
func TestRepeats(t *testing.T) {
	a, _ := pingPong(t, Config{Model: platform.Rashti(), Caps: caps(), Gather: &gather.Config{}}, 4096, 100)
	b, _ := pingPong(t, Config{Model: platform.Rashti(), Caps: caps(), Gather: &gather.Config{}}, 4096, 100)
	if a != b || a == 0 {
		t.Errorf("%v ns, then %v", a, b)
	}
}

// TestRendezvous checks that data arrive complete by each protocol.
func TestRendezvous(t *testing.T) {
	for _, rdv := range []rendezvous.Protocol{rendezvous.GetCQE, rendezvous.Get, rendezvous.Put, rendezvous.PutNR, rendezvous.RPut, rendezvous.Stream} {
		c := caps()
		c.Register, c.Read, c.Write, c.InOrder = true, true, true, true
		const n = 300_000
		run(t, Config{Model: plain(), PodOf: []int32{0, 1}, Caps: c, Core: core.Config{Rendezvous: rdv, FastPeers: -1}}, func(r *Rank) {
			if r.Number == 0 {
				for i := range n {
					r.Arena[i] = byte(i * 7)
				}
				r.Wait(r.Send(1, 3, 0, n))
				return
			}
			r.Wait(r.Recv(0, 3, 64, n))
			for i := range n {
				if r.Arena[64+i] != byte(i*7) {
					t.Errorf("%v: byte %d is wrong", rdv, i)
					return
				}
			}
		})
	}
}

// TestWindow checks that puts and gets reach the other side's window.
func TestWindow(t *testing.T) {
	const n = 5000
	run(t, Config{Model: plain(), PodOf: []int32{0, 1}, Caps: caps(), Gather: &gather.Config{}}, func(r *Rank) {
		r.Wait(r.Window(0, n))
		r.Barrier()
		if r.Number == 0 {
			fill(r.Arena[100_000:100_000+n], 3)
			r.Wait(r.Put(1, 100_000, n))
			r.Wait(r.Flush(1))
			r.Wait(r.Get(1, 200_000, n))
			if !bytes.Equal(r.Arena[100_000:100_000+n], r.Arena[200_000:200_000+n]) {
				t.Error("what was got is not what was put")
			}
		}
		r.Barrier()
	})
}

func fill(b []byte, salt byte) {
	for i := range b {
		b[i] = byte(i)*5 + salt
	}
}

// TestSharedBus checks that copies and transfers compete for the memory bus, and that a
// stream of copied fragments gets the remainder: here two thirds of the copies' rate.
func TestSharedBus(t *testing.T) {
	m := plain()
	m.PerByte, m.BusPerByte = 0.4, 0.25
	const n, messages = 256 << 10, 16
	var took float64
	run(t, Config{Model: m, PodOf: []int32{0, 1}, Caps: caps(), Core: core.Config{Rendezvous: rendezvous.Stream, FragmentBytes: 16 << 10}}, func(r *Rank) {
		var open []Request
		for i := range messages {
			if r.Number == 0 {
				open = append(open, r.Send(1, 1, i*n, n))
			} else {
				open = append(open, r.Recv(0, 1, i*n, n))
			}
		}
		r.Wait(open...)
		took = r.Now()
	})
	if rate := took / (n * messages); rate < 0.74 || rate > 0.85 {
		t.Errorf("a byte takes %v ns, want a little over 0.75", rate)
	}
}
