package ether

import (
	"bytes"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// TestThreeLaterFragments loses the first fragment of a pull and those behind some of the
// second ask, and checks that the first ask is repeated when three of these have come, long
// before the time of an ask is over, and that the pull brings all bytes then.
func TestThreeLaterFragments(t *testing.T) {
	const size = blocksOne * blockBytes // both blocks are under way at once
	for later := range lateAfter + 2 {
		n := quiet()
		a, b := simulated(t, n)
		meet(t, a, b, 1452)
		x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
		a.l.Post(1, framesOf(a.m, 1, 100, 1)) // each side learns the size of the other's packets
		b.l.Post(0, framesOf(b.m, 1, 100, 1))
		for x.Frames()+y.Frames() < 2 {
			step(n, a, b, x, y)
		}
		first := blockBytes / (1452 - headBytes - tagBytes - partHead) // fragments of a block
		a.l.reads.credit = creditMost
		parts := 0
		n.Drop = func(p []byte) bool {
			if kindOf(p) != kindPart {
				return false
			}
			parts++
			return parts == 1 || parts > first+later
		}
		src, dst := b.m.Fill(size, 1), a.m.NewRegion(size)
		key, err := b.l.Register(src)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.l.Read(1, 1, dst, key); err != nil {
			t.Fatal(err)
		}
		for end := n.Now + rtoLeast/2; n.Now < end; { // less than the time of any ask
			step(n, a, b, x, y)
		}
		if want := later >= lateAfter; (a.l.stats.AskedAgain == 1) != want || a.l.stats.AskedAgain > 1 {
			t.Errorf("%d later fragments have come: %d asks were repeated", later, a.l.stats.AskedAgain)
		}
		n.Drop = nil
		for end := n.Now + 10e9; len(x.Ends()) == 0 && n.Now < end; {
			step(n, a, b, x, y)
		}
		if err, ended := x.Ends()[1]; !ended || err != nil || !bytes.Equal(a.m.Bytes(dst), b.m.Bytes(src)) {
			t.Errorf("%d later fragments: the read has ended: %v, %v", later, ended, err)
		}
	}
}
