package linktest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// delivery is frames in flight whose memory is changed as soon as the link reports them
// as delivered.
type delivery struct {
	p      *Pair
	a, b   *Sink
	rng    *rand.Rand
	frames []*link.Frame
	sent   [][]byte
	asked  uint64 // frames that the link has accepted
	freed  uint64 // frames whose memory was changed
	faults []string
}

func newDelivery(p *Pair, rng *rand.Rand, n int) *delivery {
	d := &delivery{p: p, rng: rng}
	d.a, d.b = p.sinks()
	for i := range n {
		size := 1 + rng.IntN(12<<10)
		if rng.IntN(8) == 0 {
			size = rng.IntN(300 << 10)
		}
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(i + 1), Length: uint32(size)}}
		if size > 0 {
			f.Payload = p.A.Memory.fill(size, rng.Uint64())
		}
		d.frames = append(d.frames, f)
		d.sent = append(d.sent, bytes.Clone(payload(p.A.Memory, f)))
	}
	d.a.onDelivered = func(seq uint64) {
		if seq > d.asked {
			d.faults = append(d.faults, "a frame was delivered that was not posted")
			return
		}
		for ; d.freed < seq; d.freed++ {
			if f := d.frames[d.freed]; f.Payload.Region != 0 {
				clear(p.A.Memory.Bytes(f.Payload))
			}
		}
	}
	return d
}

// post offers a few frames to the link.
func (d *delivery) post() {
	left := d.frames[d.asked:]
	left = left[:min(len(left), 1+d.rng.IntN(8))]
	d.asked += uint64(d.p.A.Link.Post(d.p.A.Peer, left))
}

// check compares the frames that arrived with those sent, and with the number reported as
// delivered.
func (d *delivery) check(t *testing.T) {
	t.Helper()
	if len(d.faults)+len(d.a.faults)+len(d.b.faults) > 0 {
		t.Fatalf("the link has faults: %v %v %v", d.faults, d.a, d.b)
	}
	if uint64(len(d.b.frames)) < d.a.delivered {
		t.Fatalf("frames up to %d were delivered, and the peer asks again for those after %d", d.a.delivered, len(d.b.frames))
	}
	for i, got := range d.b.frames {
		if got.head != d.frames[i].Head || !bytes.Equal(got.payload, d.sent[i]) {
			t.Fatalf("frame %d of %d bytes was sent from memory that the link had released", i+1, len(d.sent[i]))
		}
	}
}

// reportsDelivery reports whether the link reports delivery and connects two separate
// links.
func (p *Pair) reportsDelivery() bool { return p.A.Link.Caps().Delivers && p.A.Link != p.B.Link }

// testDelivery checks that the link reports delivery of each frame for which it must,
// without a frame behind it, and releases the frame's memory.
func testDelivery(t *testing.T, p *Pair) {
	if !p.reportsDelivery() {
		return
	}
	d := newDelivery(p, rand.New(rand.NewPCG(1, 1)), 200)
	for d.asked < uint64(len(d.frames)) {
		want := min(d.asked+1+uint64(d.rng.IntN(3)), uint64(len(d.frames)))
		p.until(t, d.a, d.b, "a frame that is accepted", func() bool {
			if d.asked < want {
				d.asked += uint64(p.A.Link.Post(p.A.Peer, d.frames[d.asked:want]))
			}
			return d.asked == want
		})
		if d.frames[want-1].Head.Length < link.DeliveredBytes {
			continue
		}
		p.until(t, d.a, d.b, "the delivery of a frame", func() bool { return d.a.delivered == want })
		d.check(t)
	}
	p.until(t, d.a, d.b, "the last frame", func() bool { return len(d.b.frames) == len(d.frames) })
	d.check(t)
}

// testDeliveryBreaks checks that a delivered frame is never asked for again, whenever and
// at whichever side the connection ends: cut, replaced by the peer, or both. A later
// frame may have been delivered without a report.
func testDeliveryBreaks(t *testing.T, p *Pair) {
	if !p.reportsDelivery() || p.Break == nil {
		return
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	told, lost := 0, 0
	for range 60 {
		d := newDelivery(p, rng, 40)
		for range rng.IntN(60) {
			if rng.IntN(2) == 0 {
				d.post()
			}
			// The peer may be behind: it may not have seen frames that its device has
			// received.
			switch rng.IntN(4) {
			case 0:
				p.Pass()
				p.A.Link.Poll(d.a)
			case 1:
				p.Pass()
				p.B.Link.Poll(d.b)
			default:
				p.step(d.a, d.b)
			}
		}
		if rng.IntN(3) > 0 { // otherwise the next connection exists before the end of this one is seen
			p.Break(t)
			p.until(t, d.a, d.b, "Down at both sides", func() bool { return len(d.a.downs) > 0 && len(d.b.downs) > 0 })
			p.Join(t)
		} else {
			p.B.Link.Poll(d.b) // the events must go to b's sink
			p.A.Link.Poll(d.a)
			p.Join(t)
		}
		if t.Failed() {
			return
		}
		d.check(t)
		if told += int(d.a.delivered); d.a.delivered < d.asked {
			lost++
		}
	}
	if told == 0 || lost == 0 {
		t.Errorf("seed %d: %d frames were delivered, %d breaks lost some: the test shows nothing", seed, told, lost)
	}
	t.Logf("seed %d: %d frames delivered, %d of 60 breaks lost some", seed, told, lost)
}
