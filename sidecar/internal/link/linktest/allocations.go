package linktest

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// testAllocations checks that a small frame costs no allocation on its way, except on the
// simulator's link.
func testAllocations(t *testing.T, p *Pair) {
	if raceEnabled || p.Lossy || p.A.Link.Caps().Name == "sim" {
		return
	}
	a, b := p.sinks()
	a.brief, b.brief = true, true
	f := &link.Frame{Head: wire.Header{Type: wire.Eager, Seq: 1, Length: 8}}
	batch := []*link.Frame{f, f, f, f}
	round := func() {
		want := b.count + len(batch)
		if p.A.Link.Post(p.A.Peer, batch) != len(batch) {
			t.Fatal("an idle link does not accept four small frames")
		}
		for b.count < want {
			p.step(a, b)
		}
	}
	round()
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations for %d small frames, want 0", n, len(batch))
	}
}
