package linktest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// delivery is frames under way whose memory is changed as soon as the link tells that
// they have come.
type delivery struct {
	p      *Pair
	a, b   *Sink
	rng    *rand.Rand
	frames []*link.Frame
	sent   [][]byte
	asked  uint64 // frames that the link has taken
	freed  uint64 // frames whose memory is another's
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
	d.a.onTold = func(seq uint64) {
		if seq > d.asked {
			d.faults = append(d.faults, "a frame has come that was not posted")
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

// post offers a few frames.
func (d *delivery) post() {
	left := d.frames[d.asked:]
	left = left[:min(len(left), 1+d.rng.IntN(8))]
	d.asked += uint64(d.p.A.Link.Post(d.p.A.Peer, left))
}

// check compares what has come with what was sent, and with what was told.
func (d *delivery) check(t *testing.T) {
	t.Helper()
	if len(d.faults)+len(d.a.faults)+len(d.b.faults) > 0 {
		t.Fatalf("the link has faults: %v %v %v", d.faults, d.a, d.b)
	}
	if uint64(len(d.b.frames)) < d.a.told {
		t.Fatalf("frames up to %d were told to have come, and the peer asks for those after %d again", d.a.told, len(d.b.frames))
	}
	for i, got := range d.b.frames {
		if got.head != d.frames[i].Head || !bytes.Equal(got.payload, d.sent[i]) {
			t.Fatalf("frame %d of %d bytes was sent from memory that the link had let go of", i+1, len(d.sent[i]))
		}
	}
}

// tells reports that the link tells of delivery between two ends of its own.
func (p *Pair) tells() bool { return p.A.Link.Caps().Delivers && p.A.Link != p.B.Link }

// testDelivery: of every frame that must be told of, the link tells without any other
// behind it, and lets go of its memory.
func testDelivery(t *testing.T, p *Pair) {
	if !p.tells() {
		return
	}
	d := newDelivery(p, rand.New(rand.NewPCG(1, 1)), 200)
	for d.asked < uint64(len(d.frames)) {
		want := min(d.asked+1+uint64(d.rng.IntN(3)), uint64(len(d.frames)))
		p.until(t, d.a, d.b, "a frame that is taken", func() bool {
			if d.asked < want {
				d.asked += uint64(p.A.Link.Post(p.A.Peer, d.frames[d.asked:want]))
			}
			return d.asked == want
		})
		if d.frames[want-1].Head.Length < link.ToldBytes {
			continue
		}
		p.until(t, d.a, d.b, "the news that a frame has come", func() bool { return d.a.told == want })
		d.check(t)
	}
	p.until(t, d.a, d.b, "the last frame", func() bool { return len(d.b.frames) == len(d.frames) })
	d.check(t)
}

// testDeliveryBreaks: what was told to have come is never asked for again, at whatever
// moment and from which side the connection ends: cut, given up by the peer for another
// one, or by both. A frame behind those that were told may have come, too.
func testDeliveryBreaks(t *testing.T, p *Pair) {
	if !p.tells() || p.Break == nil {
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
			// The peer may be behind: what has come to its device it has not seen.
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
		if rng.IntN(3) > 0 { // else the next connection is there before the end of this one is seen
			p.Break(t)
			p.until(t, d.a, d.b, "the news at both ends", func() bool { return len(d.a.downs) > 0 && len(d.b.downs) > 0 })
			p.Join(t)
		} else {
			p.B.Link.Poll(d.b) // it is b's sink that hears of it
			p.A.Link.Poll(d.a)
			p.Join(t)
		}
		if t.Failed() {
			return
		}
		d.check(t)
		if told += int(d.a.told); d.a.told < d.asked {
			lost++
		}
	}
	if told == 0 || lost == 0 {
		t.Errorf("seed %d: %d frames were told of, %d breaks took some: the test shows nothing", seed, told, lost)
	}
	t.Logf("seed %d: %d frames told of, %d of 60 breaks took some", seed, told, lost)
}
