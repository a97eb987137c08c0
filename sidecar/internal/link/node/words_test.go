package node

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestEndBeforeRegion: a connection that breaks before this side has heard where a frame's
// payload lies is broken, which is mended, and not the peer's fault, which ends the job.
func TestEndBeforeRegion(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(x *two)
	}{
		{"the proven socket", func(x *two) { x.a.l.Break(0) }},
		{"both, with words that nobody has read", func(x *two) { x.hither.wake(); x.a.l.Forget(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTwo(t, 1)
			if n := x.a.l.Post(0, []*link.Frame{x.frame(100_000)}); n != 1 {
				t.Fatal("the frame was not taken")
			}
			c.end(x)
			x.b.l.look = true
			for range 10 {
				x.b.l.Poll(x.toB)
			}
			if len(x.toB.downs) != 1 || !errors.Is(x.toB.downs[0], link.ErrBroken) || errors.Is(x.toB.downs[0], link.ErrProtocol) {
				t.Errorf("%v, want an end by %v", x.toB, link.ErrBroken)
			}
		})
	}
}
