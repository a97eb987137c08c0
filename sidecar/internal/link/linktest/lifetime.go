package linktest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// testLifetime: memory whose registration has ended is not touched any more,
// however far the operations that use it had come, and they end with an error.
// The memory is taken away at once, as that of a rank that leaves is.
func testLifetime(t *testing.T, p *Pair) {
	a, b, ok := p.remotes(func(c link.Caps) bool { return c.Read && c.Write })
	if !ok {
		return
	}
	const n = 2 << 20 // several times what a link moves in a poll
	mine, theirs := p.A.Memory.fill(n, 1), p.B.Memory.fill(n, 2)
	cut := 0
	for round := range 16 {
		write := round%2 == 1
		sa, sb := p.sinks()
		k := register(t, b, theirs)
		var err error
		if write {
			err = a.Write(p.A.Peer, 1, mine, k, 0)
		} else {
			err = a.Read(p.A.Peer, 1, mine, k)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range round {
			p.step(sa, sb)
		}
		b.Deregister(k)
		before := bytes.Clone(p.B.Memory.Bytes(theirs))
		p.B.Memory.take(theirs)
		p.until(t, sa, sb, "the end of an operation without a registration", func() bool { return len(sa.dones) > 0 })
		if err := sa.dones[1]; err != nil {
			cut++
			if !errors.Is(err, link.ErrKey) && !errors.Is(err, link.ErrBroken) {
				t.Fatalf("an operation whose registration had ended: got %v, want ErrKey or ErrBroken", err)
			}
		}
		if !bytes.Equal(p.B.Memory.giveBack(theirs), before) {
			t.Fatalf("round %d: memory changed after its registration had ended", round)
		}
		if len(sa.downs) > 0 && p.Join != nil {
			p.Join(t)
		}
	}
	if cut == 0 {
		t.Fatal("no registration ended before its operation: the test shows nothing")
	}
}
