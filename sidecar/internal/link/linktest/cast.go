package linktest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// testCasts checks that casts are in place, in their order, before a frame that is posted
// after them, and before a write that is started after them, and that they carry the
// bytes that were there when they were made.
func testCasts(t *testing.T, p *Pair) {
	a, b, ok := p.remotes(func(c link.Caps) bool { return c.Write && c.Ordered })
	caster := p.A.Link.Abilities().Caster
	if !ok || caster == nil {
		return
	}
	sa, sb := p.sinks()
	const size, rounds = 200, 100
	src, last, dst := p.A.Memory.add(size), p.A.Memory.fill(size, 3), p.B.Memory.add(64*size)
	k := register(t, b, dst)
	want, told := make([]byte, 64*size), 0
	for round := range rounds {
		for i := range 1 + round%63 { // more than there is room for
			n := uint64(1 + (round*31+i*7)%size)
			to := uint64(i) * size
			if i%5 == 4 {
				to -= size // overlaps the previous one
			}
			for x := range p.A.Memory.Bytes(src) {
				p.A.Memory.Bytes(src)[x] = byte(round + i + x)
			}
			notify := uint64(0)
			if i%3 == 0 && p.A.Link.Caps().Notify {
				told++
				notify = uint64(told)
			}
			key := k
			key.Addr += to
			p.until(t, sa, sb, "room for a cast", func() bool { return caster.Cast(p.A.Peer, p.A.Memory.Bytes(src)[:n], key, notify) })
			copy(want[to:], p.A.Memory.Bytes(src)[:n])
		}
		clear(p.A.Memory.Bytes(src))
		if round%2 == 0 { // overlaps the last casts
			key := k
			key.Addr += uint64(round%63) * size
			if err := a.Write(p.A.Peer, uint64(round), last, key, 0); err != nil {
				t.Fatal(err)
			}
			p.until(t, sa, sb, "the end of a write", func() bool { _, over := sa.dones[uint64(round)]; return over })
			copy(want[uint64(round%63)*size:], p.A.Memory.Bytes(last))
		}
		f := &link.Frame{Head: wire.Header{Type: wire.Data, Seq: uint64(round + 1)}}
		p.until(t, sa, sb, "room for a frame", func() bool { return p.A.Link.Post(p.A.Peer, []*link.Frame{f}) == 1 })
		p.until(t, sa, sb, "a frame behind casts", func() bool { return len(sb.frames) == round+1 })
		if got := p.B.Memory.Bytes(dst); !bytes.Equal(got, want) {
			t.Fatalf("round %d: a frame arrives before the casts before it", round)
		}
		if len(sb.written) != told || told > 0 && sb.written[told-1] != uint64(told) {
			t.Fatalf("round %d: %d notifications, want %d in order", round, len(sb.written), told)
		}
	}
	if len(sa.dones) != rounds/2 {
		t.Errorf("%d operations are reported, want %d, the writes without the casts", len(sa.dones), rounds/2)
	}
	b.Deregister(k)
	p.until(t, sa, sb, "room for a cast", func() bool { return caster.Cast(p.A.Peer, p.A.Memory.Bytes(src), k, 0) })
	p.until(t, sa, sb, "the end of the connection", func() bool { return len(sa.downs) > 0 })
	if !errors.Is(sa.downs[0], link.ErrBroken) {
		t.Errorf("a cast without a key ends the connection with %v", sa.downs[0])
	}
}
