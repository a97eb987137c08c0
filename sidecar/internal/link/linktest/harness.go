// Package linktest is the conformance suite of links: what every transport
// must do so that the core works over it, whatever it is made of.
package linktest

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// End is one side of a connection: its link, the memory that the link was given,
// and the number of the other side.
type End struct {
	Link   link.Link
	Memory *Memory
	Peer   link.Peer
}

// Pair is two connected ends. A link to itself has the same Link twice.
type Pair struct {
	A, B End
	// Pass lets some time go by, for links whose clock is not the machine's.
	Pass func()
	// Break cuts the connection as a failing network would, and Join makes a
	// new one; nil for links that have none.
	Break, Join func(t *testing.T)
	// Inject makes a connection on which raw bytes arrive at B as if A had
	// sent them, then its end; nil for links that carry no bytes.
	Inject func(t *testing.T, raw []byte)
	// Messages says that the link carries messages that hold whole headers: half a
	// header is no connection that broke, but what no correct peer sends.
	Messages bool
}

// Harness makes a fresh pair. What it opens it closes by t.Cleanup.
type Harness func(t *testing.T) *Pair

// Run checks a link against everything that link.Link, link.Remote and
// link.Sink promise.
func Run(t *testing.T, h Harness) {
	t.Run("Abilities", func(t *testing.T) { testAbilities(t, h(t)) })
	t.Run("Frames", func(t *testing.T) { testFrames(t, h(t)) })
	t.Run("BothWays", func(t *testing.T) { testBothWays(t, h(t)) })
	t.Run("BackPressure", func(t *testing.T) { testBackPressure(t, h(t)) })
	t.Run("Ahead", func(t *testing.T) { testAhead(t, h(t)) })
	t.Run("Forget", func(t *testing.T) { testForget(t, h(t)) })
	t.Run("Refusal", func(t *testing.T) { testRefusal(t, h(t)) })
	t.Run("Break", func(t *testing.T) { testBreak(t, h(t)) })
	t.Run("BreakFull", func(t *testing.T) { testBreakFull(t, h(t)) })
	t.Run("Delivery", func(t *testing.T) { testDelivery(t, h(t)) })
	t.Run("DeliveryBreaks", func(t *testing.T) { testDeliveryBreaks(t, h(t)) })
	t.Run("Garbage", func(t *testing.T) { testGarbage(t, h(t)) })
	t.Run("Read", func(t *testing.T) { testRead(t, h(t)) })
	t.Run("Write", func(t *testing.T) { testWrite(t, h(t)) })
	t.Run("Casts", func(t *testing.T) { testCasts(t, h(t)) })
	t.Run("Protection", func(t *testing.T) { testProtection(t, h(t)) })
	t.Run("Lifetime", func(t *testing.T) { testLifetime(t, h(t)) })
	t.Run("Allocations", func(t *testing.T) { testAllocations(t, h(t)) })
}

// step polls both ends once.
func (p *Pair) step(a, b *Sink) int {
	p.Pass()
	n := p.A.Link.Poll(a)
	if p.A.Link != p.B.Link {
		n += p.B.Link.Poll(b)
	}
	return n
}

// patience is how many polls without progress a test waits for what must come.
const patience = 2_000_000

// until polls both ends until over says so.
func (p *Pair) until(t *testing.T, a, b *Sink, what string, over func() bool) {
	t.Helper()
	for idle := 0; idle < patience; idle++ {
		if over() {
			return
		}
		if p.step(a, b) > 0 {
			idle = 0
		}
	}
	t.Fatalf("%s does not come; A saw %v, B saw %v", what, a, b)
}

// sinks are the ends' sinks: one for a link to itself.
func (p *Pair) sinks() (a, b *Sink) {
	b = NewSink(p.B.Memory)
	if p.A.Link == p.B.Link {
		return b, b
	}
	return NewSink(p.A.Memory), b
}
