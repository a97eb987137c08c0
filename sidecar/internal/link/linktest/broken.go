package linktest

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// testForget checks that a side that forgets a connection receives no more events of it.
func testForget(t *testing.T, p *Pair) {
	if p.Break == nil {
		return // there is no connection
	}
	a, b := p.sinks()
	p.A.Link.Post(p.A.Peer, stream(p.A.Memory, 1))
	p.A.Link.Forget(p.A.Peer)
	p.until(t, a, b, "the end at the other side", func() bool { return len(b.downs) > 0 })
	if len(a.downs) > 0 {
		t.Fatalf("the side that forgot its connection received %v", a.downs)
	}
	if n := p.A.Link.Post(p.A.Peer, stream(p.A.Memory, 1)); n != 0 {
		t.Fatalf("%d frames were accepted without a connection", n)
	}
}

// testRefusal checks that a frame that the core refuses ends the connection with
// ErrProtocol, and that no further frame of it arrives.
func testRefusal(t *testing.T, p *Pair) {
	for _, n := range []int{8, 200_000} {
		a, b := p.sinks()
		b.refuse = true
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: uint32(n)}, Payload: p.A.Memory.fill(n, 1)}
		p.A.Link.Post(p.A.Peer, []*link.Frame{f, f})
		p.until(t, a, b, "the refusal", func() bool { return len(b.downs) > 0 })
		b.refuse = false
		for range 100 {
			p.step(a, b)
		}
		if len(b.downs) != 1 || !errors.Is(b.downs[0], link.ErrProtocol) || len(b.frames) > 0 {
			t.Fatalf("after a refusal the link reported %v", b)
		}
		if p.Join == nil {
			return
		}
		p.Join(t)
	}
}

// testBreak checks that both sides learn of a cut, once each, that frames delivered
// before it are whole, and that a new connection starts afresh.
func testBreak(t *testing.T, p *Pair) {
	if p.Break == nil {
		return
	}
	for round := range 5 {
		a, b := p.sinks()
		frames := stream(p.A.Memory, 2)
		left := frames
		p.until(t, a, b, "some frames", func() bool {
			left = left[p.A.Link.Post(p.A.Peer, left):]
			return len(b.frames) > 9*round
		})
		p.Break(t)
		p.until(t, a, b, "Down at both sides", func() bool { return len(a.downs) > 0 && len(b.downs) > 0 })
		for _, s := range []*Sink{a, b} {
			if len(s.downs) != 1 || !errors.Is(s.downs[0], link.ErrBroken) || len(s.faults) > 0 {
				t.Fatalf("after a cut the link reported %v, want one ErrBroken", s)
			}
		}
		if n := p.A.Link.Post(p.A.Peer, frames); n != 0 {
			t.Fatalf("%d frames were accepted on a cut connection", n)
		}
		arrivedCount := len(b.frames)
		b.downs = nil
		compare(t, p.A.Memory, frames[:arrivedCount], b)
		p.Join(t)
		a, b = p.sinks()
		p.carry(t, p.A, frames, a, b, b)
	}
}

// testGarbage checks that bytes that are not frames end the connection with ErrProtocol,
// and that incomplete bytes end it with ErrBroken.
func testGarbage(t *testing.T, p *Pair) {
	if p.Inject == nil {
		return
	}
	var good [wire.HeaderBytes]byte
	head := wire.Header{Type: wire.Data, Seq: 1, Length: 100_000}
	head.Encode(&good)
	half := link.ErrBroken
	if p.Messages {
		half = link.ErrProtocol
	}
	version, long, unknown := good, good, good
	version[0] ^= 0x80
	long[7] = 0xff
	unknown[1] = 0xee
	for name, x := range map[string]struct {
		raw  []byte
		want error
	}{
		"nothing":       {nil, link.ErrBroken},
		"half a header": {good[:40], half},
		"half a frame":  {append(good[:], make([]byte, 5000)...), link.ErrBroken},
		"zeros":         {make([]byte, 4096), link.ErrProtocol},
		"version":       {version[:], link.ErrProtocol},
		"length":        {long[:], link.ErrProtocol},
		"type":          {unknown[:], link.ErrProtocol},
		"HTTP":          {[]byte("GET / HTTP/1.1\r\nHost: sidecar\r\nUser-Agent: unauthenticated client\r\n\r\n"), link.ErrProtocol},
	} {
		a, b := p.sinks()
		p.Inject(t, x.raw)
		p.until(t, a, b, "the end after "+name, func() bool { return len(b.downs) > 0 })
		if !errors.Is(b.downs[0], x.want) || len(b.frames) > 0 {
			t.Errorf("%s: the link reported %v, want %v", name, b, x.want)
		}
	}
}

// testBreakFull checks that a cut while the link is full leaves nothing of its frames
// behind: the next connection accepts and carries frames.
func testBreakFull(t *testing.T, p *Pair) {
	if p.Break == nil {
		return
	}
	large := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: 1, Length: 1 << 20}, Payload: p.A.Memory.fill(1<<20, 1)}
	for range 10 {
		a, b := p.sinks()
		for taken, refused := 0, 0; refused < 3 && taken < 1000; {
			n := p.A.Link.Post(p.A.Peer, []*link.Frame{large})
			taken += n
			refused += 1 - n
		}
		p.Break(t)
		p.until(t, a, b, "Down at both sides", func() bool { return len(a.downs) > 0 && len(b.downs) > 0 })
		p.Join(t)
		a, b = p.sinks()
		p.carry(t, p.A, stream(p.A.Memory, 3), a, b, b)
	}
}
