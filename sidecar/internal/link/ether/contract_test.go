package ether_test

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

var frameSizes = []int{0, 1, 63, 64, 65, 1000, 1100, 1400, 4096, 4097, 8000, 8808, 8809, 8832, 8833, 9000, 65536, 200_000, 0, 3}

func TestContractFrames(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		for _, m.path = range []int{8952, 1452, 1402, 1232} {
			r := newRig(t, m)
			list := r.posts(frameSizes...)
			r.compare(list)
			r.receives()
			r.settle()
			if len(r.seen) != int(r.highest) {
				t.Errorf("%d packets came, and the highest counter is %d", len(r.seen), r.highest)
			}
		}
	})
}

// compare waits for the frames of the Link.
func (r *rig) compare(list []*link.Frame) {
	r.t.Helper()
	r.pass("frames of the Link", 60e9, func() bool { return len(r.frames) >= len(list) })
	if len(r.frames) != len(list) {
		r.t.Fatalf("%d frames came, want %d", len(r.frames), len(list))
	}
	for i, f := range list {
		same(r.t, i, &r.frames[i].head, &f.Head, r.frames[i].payload, r.payload(f))
	}
}

// receives sends frames to the Link: several in a packet, and with payloads in the data
// connection, small ones as well, some of them before their header.
func (r *rig) receives() {
	r.t.Helper()
	var sent []*frame
	for i, n := range frameSizes {
		a := r.made(n, n > 1000 || n > 0 && i%2 == 0)
		b := r.made(i, false)
		early := min(n, 10_000*(i%3)) // bytes that come before their header
		if !a.socket {
			early = 0
		}
		r.write(a.payload[:early])
		r.settle()
		r.stream(uint32(i+1), a, b)
		sent = append(sent, a, b)
		if a.socket {
			r.write(a.payload[early:])
		}
	}
	r.delivered(sent)
}

// delivered waits until the Link has delivered these frames and no others.
func (r *rig) delivered(sent []*frame) {
	r.t.Helper()
	r.arrived("frames of the peer", len(sent))
	for i, f := range sent {
		g := r.sink.frames[i]
		same(r.t, i, &g.head, &f.head, g.payload, f.payload)
	}
}

// TestContractLoss loses packets of the Link, and sends copies of this side's in any order.
func TestContractLoss(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		m.path = 1232
		r := newRig(t, m)
		chance := mathrand.New(mathrand.NewPCG(1, 2))
		r.lose = func(packet) bool { return chance.IntN(4) == 0 }
		sizes := thousands(300)
		for i := range sizes {
			if i%10 == 0 {
				sizes[i] = 20_000
			}
		}
		list := r.posts(sizes...)
		r.compare(list)

		var sent []*frame
		for range 100 {
			sent = append(sent, r.made(chance.IntN(900), false))
		}
		for _, i := range append(chance.Perm(100), chance.Perm(100)...) {
			r.stream(uint32(i+1), sent[i])
			r.settle()
		}
		r.delivered(sent)
		r.pass("the acknowledgement", 100*ms, func() bool { return r.told.next == 101 })
		if n := r.l.Stats().Repeated; n != 100 {
			t.Errorf("%d packets were repeats, want 100", n)
		}
	})
}

// TestContractRepeats checks the times at which a packet is sent again, and that the
// connection is broken at last.
func TestContractRepeats(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	r.manual = true
	for i := range uint32(20) { // the Link measures a round trip of 1 ms
		r.posts(1)
		r.settle()
		r.clock.Add(ms)
		r.ack(i+2, 0, i+2+ahead)
		r.settle()
	}
	r.take()
	start := r.clock.Load()
	r.posts(thousands(3)...)
	r.pass("the end", 12e9, func() bool { return len(r.sink.downs) > 0 })
	if d := r.clock.Load() - start; d < 10e9 || d > 11e9+ms {
		t.Errorf("the connection is broken after %v, want 10 s, and at most one repetition more", time.Duration(d))
	}
	var last, wait int64
	for _, x := range r.log {
		if x.kind != kindStream || x.number != 21 {
			continue
		}
		if last != 0 {
			want := min(max(10*ms, 2*wait), 500*ms)
			if wait = x.at - last; wait < want || wait > want+ms {
				t.Errorf("the packet was sent again after %v, want %v", time.Duration(wait), time.Duration(want))
			}
		}
		last = x.at
	}
	if wait < 500*ms {
		t.Errorf("the last pause was %v, want 0.5 s", time.Duration(wait))
	}
	// The contract says that a packet is sent again when its time is over. The Link sends
	// again only the first missing one, as RFC 6298 §5 does.
	if slices.Contains(r.numbers()[3:], 23) {
		t.Error("a packet behind the first missing one is sent again by time")
	}
	if len(r.sink.downs) != 1 || !errors.Is(r.sink.downs[0], link.ErrBroken) {
		t.Errorf("the connection ended with %v", r.sink.downs)
	}
}

// TestContractBurst loses a whole window: its packets follow the first acknowledgement.
func TestContractBurst(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	lost := 0
	r.lose = func(x packet) bool { lost++; return lost <= 16 }
	list := r.posts(thousands(16)...)
	start := r.clock.Load()
	r.compare(list)
	if d := r.clock.Load() - start; d > 1000*ms {
		t.Errorf("16 packets took %v", time.Duration(d))
	}
}

func TestContractSelected(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	r.manual = true
	r.posts(thousands(12)...)
	r.settle()
	r.want("posted", span(1, 12)...)
	r.ack(1, 0b11, 257) // 2, 3
	r.settle()
	r.want("two later ones have come")
	r.ack(1, 0b10011, 257) // 6
	r.settle()
	r.want("three later ones have come", 1)
	r.ack(1, 0b1110011, 257) // 7, 8: four behind 4 and 5
	r.settle()
	r.want("three later ones than two others have come", 4, 5)
	r.ack(1, 0b11111111011, 257) // all but 1 and 4
	r.settle()
	r.want("copies are under way")
	r.ack(4, 0b11111111, 257)
	for i := range 400 {
		r.clock.Add(ms)
		r.settle()
		if i == 200 {
			r.ack(4, 0b11111111, 257)
		}
	}
	for _, n := range r.numbers() {
		if n != 4 {
			t.Errorf("packet %d came again, which is acknowledged", n)
		}
	}
	r.ack(13, 0, 269)
	r.settle()
	r.quiet()
}

// quiet checks that the Link sends nothing for two seconds.
func (r *rig) quiet() {
	r.t.Helper()
	r.take()
	r.sleep(2000 * ms)
	if len(r.log) > 0 || len(r.sink.downs) > 0 {
		r.t.Errorf("the Link has sent %+v; downs %v", r.log, r.sink.downs)
	}
}

func TestContractQuiet(t *testing.T) {
	each(t, func(t *testing.T, m mode) {
		r := newRig(t, m)
		r.quiet()
		list := r.posts(10, 20_000, 0)
		r.compare(list)
		f := r.made(10, false)
		r.stream(1, f)
		r.delivered([]*frame{f})
		r.sleep(10 * ms) // its acknowledgement may be delayed
		if r.told.next != 2 {
			t.Errorf("a packet is not acknowledged after 10 ms, which is the least time of a repetition")
		}
		r.quiet()
	})
}

// TestContractOrder checks what the Link acknowledges of packets that come out of order.
func TestContractOrder(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	sent := make([]*frame, 6)
	for i := range sent {
		sent[i] = r.made(i, false)
	}
	at := func(next uint32, bits uint64) {
		t.Helper()
		r.pass(fmt.Sprintf("an acknowledgement of all before %d and of %b", next, bits), 10*ms, func() bool {
			return r.told.next == next && r.told.bits == bits
		})
		r.sleep(10 * ms)
		if r.told.next != next || r.told.bits != bits {
			t.Errorf("the Link has told %+v", r.told)
		}
	}
	r.stream(4, sent[3])
	at(1, 0b100)
	r.stream(2, sent[1])
	at(1, 0b101)
	r.stream(4, sent[3])
	at(1, 0b101)
	r.arrived("frames in order", 0)
	r.stream(1, sent[0])
	at(3, 0b1)
	r.stream(6, sent[5])
	at(3, 0b101)
	r.stream(3, sent[2])
	at(5, 0b1)
	r.stream(1, sent[0])
	r.stream(5, sent[4])
	at(7, 0)
	r.delivered(sent)

	// 256 packets from the first missing one on.
	last := r.made(7, false)
	r.stream(7+ahead-1, last)
	r.settle()
	odd := r.l.Stats().Repeated
	r.stream(7+ahead, r.made(7, false))
	r.settle()
	if r.l.Stats().Repeated != odd+1 {
		t.Error("the packet that is 256 after the first missing one is accepted")
	}
	for i := range uint32(ahead - 1) {
		f := r.made(int(i), false)
		sent = append(sent, f)
		r.stream(7+i, f)
		r.settle()
	}
	r.delivered(append(sent, last))
}

// TestContractStalled checks that packets behind a header wait for its payload.
func TestContractStalled(t *testing.T) {
	r := newRig(t, mode{path: 1232})
	large := r.made(3000, true)
	sent := []*frame{r.made(1, false), large, r.made(2, false)}
	r.stream(1, sent...)
	for i := range uint32(ahead) {
		if 2+i == r.told.limit {
			break
		}
		f := r.made(3, false)
		sent = append(sent, f)
		r.stream(2+i, f)
		r.sleep(ms)
	}
	r.sleep(10 * ms)
	r.arrived("frames before the payload", 1)
	if r.told.limit != 2+ahead-1 && r.told.limit != 2+ahead {
		t.Errorf("the Link has told %+v", r.told)
	}
	r.write(large.payload[:1000])
	r.sleep(10 * ms)
	r.arrived("frames before the payload", 1)
	r.write(large.payload[1000:])
	r.delivered(sent)
	// The room that there is again has to be told, because the peer may wait for it.
	r.pass("room", 100*ms, func() bool { return r.told.limit-r.told.next == ahead })
}
