package linktest

import (
	"bytes"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// sizes are payload sizes at the edges of every path that a link may have.
var sizes = []int{
	0, 1, 7, 8, 31, 32, 33, 63, link.InlineMax, 65, 127, 1000, 1023, 1024, 1025, 2047, 2048, 2049,
	4095, 4096, 4097, 65_535, 65_536, 65_537, 262_143, 262_144, wire.FrameMax - 1, wire.FrameMax,
}

// stream returns frames of all sizes, numbered in order, with payloads inline and in
// memory.
func stream(m *Memory, rounds int) []*link.Frame {
	var frames []*link.Frame
	for round := range rounds {
		for _, n := range sizes {
			f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(len(frames) + 1), Tag: uint64(round), Length: uint32(n)}}
			if i := len(frames); i%3 > 0 { // a message, mostly with an element type
				f.Head.Type, f.Head.Elem = wire.Eager, uint8(i/3%(wire.ElemMax+1))
			}
			if n <= link.InlineMax && round%2 == 0 {
				for i := range n {
					f.Inline[i] = byte(i*7 + len(frames))
				}
			} else if n > 0 {
				f.Payload = m.fill(n, uint64(len(frames)))
			}
			frames = append(frames, f)
		}
	}
	return frames
}

func payload(m *Memory, f *link.Frame) []byte {
	if f.Payload.Region != 0 {
		return m.Bytes(f.Payload)[:f.Head.Length]
	}
	return f.Inline[:f.Head.Length]
}

// carry posts frames at one side, as the link accepts them, until the other side has all
// of them.
func (p *Pair) carry(t *testing.T, from Side, frames []*link.Frame, a, b, at *Sink) {
	t.Helper()
	left := frames
	p.until(t, a, b, "the last frame", func() bool {
		n := from.Link.Post(from.Peer, left)
		if n < 0 || n > len(left) {
			t.Fatalf("the link accepted %d of %d frames", n, len(left))
		}
		left = left[n:]
		return len(left) == 0 && len(at.frames) >= len(frames)
	})
	compare(t, from.Memory, frames, at)
}

// Compare checks that the frames, and nothing else, have arrived in order; m is the memory
// that they were sent from.
func Compare(t *testing.T, m *Memory, frames []*link.Frame, at *Sink) {
	t.Helper()
	compare(t, m, frames, at)
}

func compare(t *testing.T, m *Memory, frames []*link.Frame, at *Sink) {
	t.Helper()
	if len(at.frames) != len(frames) {
		t.Fatalf("%d frames arrived, want %d", len(at.frames), len(frames))
	}
	for i, f := range frames {
		got := at.frames[i]
		if got.head != f.Head {
			t.Fatalf("frame %d arrived with header %+v, want %+v", i, got.head, f.Head)
		}
		if !bytes.Equal(got.payload, payload(m, f)) {
			t.Fatalf("frame %d arrived with %d other bytes", i, f.Head.Length)
		}
	}
	if len(at.faults) > 0 || len(at.downs) > 0 {
		t.Fatalf("the link has faults: %v", at)
	}
}

func testFrames(t *testing.T, p *Pair) {
	if c := p.A.Link.Caps(); c.Name == "" || c.GatherMax < 1 || c.EagerMax == 0 {
		t.Errorf("%+v: want a name, a GatherMax of at least 1, and an EagerMax", c)
	}
	a, b := p.sinks()
	p.carry(t, p.A, stream(p.A.Memory, 4), a, b, b)
}

func testBothWays(t *testing.T, p *Pair) {
	if p.A.Link == p.B.Link {
		return // a link to itself has one direction
	}
	a, b := p.sinks()
	forth, back := stream(p.A.Memory, 2), stream(p.B.Memory, 2)
	x, y := forth, back
	p.until(t, a, b, "the last frame", func() bool {
		x = x[p.A.Link.Post(p.A.Peer, x):]
		y = y[p.B.Link.Post(p.B.Peer, y):]
		return len(b.frames) >= len(forth) && len(a.frames) >= len(back)
	})
	compare(t, p.A.Memory, forth, b)
	compare(t, p.B.Memory, back, a)
}

// testBackPressure checks that a link whose peer does not read accepts a bounded number
// of frames, and that all of them arrive when the peer reads.
func testBackPressure(t *testing.T, p *Pair) {
	const most = 200_000
	a, b := p.sinks()
	ref := p.A.Memory.fill(1<<10, 1)
	var frames []*link.Frame
	for len(frames) < most {
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(len(frames) + 1), Length: 1 << 10}, Payload: ref}
		if p.A.Link.Post(p.A.Peer, []*link.Frame{f}) == 0 {
			break
		}
		frames = append(frames, f)
	}
	if len(frames) == most {
		t.Fatalf("the link accepted %d frames to a peer that does not read", most)
	}
	p.until(t, a, b, "the last frame", func() bool { return len(b.frames) >= len(frames) })
	compare(t, p.A.Memory, frames, b)
	b.frames = nil
	p.carry(t, p.A, stream(p.A.Memory, 1), a, b, b)
}
