// Package linktest is the conformance suite of links: what every transport must do so
// that the core works over it. Each link's tests call Run.
package linktest

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Side is one side of a connection: its link, the memory that the link was given, and the
// number of the other side.
type Side struct {
	Link   link.Link
	Memory *Memory
	Peer   link.Peer
}

// Pair is two connected sides. A link to itself has the same Link twice.
type Pair struct {
	A, B Side
	// Pass advances the clock, for links that do not use the machine's.
	Pass func()
	// Break cuts the connection as a failing network would, and Join makes a new one; nil
	// for links without connections.
	Break, Join func(t *testing.T)
	// Inject makes a connection on which raw bytes arrive at B as if A had sent them,
	// followed by its end; nil for links that carry no bytes.
	Inject func(t *testing.T, raw []byte)
	// Messages says that the link carries messages that hold whole headers: half a header
	// is then a breach of the protocol, and not a broken connection.
	Messages bool
	// Lossy says that the test loses what the link sends: the link is slow, and may refuse
	// frames while nothing seems to be under way.
	Lossy bool
}

// Harness returns a new pair, and closes it with t.Cleanup.
type Harness func(t *testing.T) *Pair

// Run checks a link against the contracts of link.Link, link.Remote and link.Sink.
func Run(t *testing.T, h Harness) {
	t.Run("Abilities", func(t *testing.T) { testAbilities(t, h(t)) })
	t.Run("Frames", func(t *testing.T) { testFrames(t, h(t)) })
	t.Run("BothWays", func(t *testing.T) { testBothWays(t, h(t)) })
	t.Run("BackPressure", func(t *testing.T) { testBackPressure(t, h(t)) })
	t.Run("EarlyAck", func(t *testing.T) { testEarlyAck(t, h(t)) })
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

// step polls both sides once.
func (p *Pair) step(a, b *Sink) int {
	p.Pass()
	n := p.A.Link.Poll(a)
	if p.A.Link != p.B.Link {
		n += p.B.Link.Poll(b)
	}
	return n
}

// A test waits for an event for so many polls without progress, and for so long: some links have
// no clock but the number of polls, and polls of others take 100 ns, while a packet that is lost
// for the fifth time is sent again after half a second.
const (
	idleMax  = 2_000_000
	idleTime = 20 * time.Second
)

// until polls both sides until over returns true.
func (p *Pair) until(t *testing.T, a, b *Sink, what string, over func() bool) {
	t.Helper()
	since := time.Now()
	for idle := 0; idle < idleMax || time.Since(since) < idleTime; idle++ {
		if over() {
			return
		}
		if p.step(a, b) > 0 {
			idle, since = 0, time.Now()
		}
	}
	t.Fatalf("%s does not happen; A saw %v, B saw %v", what, a, b)
}

// sinks returns the sinks of the sides: one for a link to itself.
func (p *Pair) sinks() (a, b *Sink) {
	b = NewSink(p.B.Memory)
	if p.A.Link == p.B.Link {
		return b, b
	}
	return NewSink(p.A.Memory), b
}
