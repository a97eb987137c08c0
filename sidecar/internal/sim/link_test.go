package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// TestLink: the simulated link satisfies the contract of links, with every combination of
// capabilities.
func TestLink(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		for _, notify := range []bool{false, true} {
			caps := link.Caps{Name: "sim", Register: true, Read: true, Write: true, InOrder: inOrder, Notify: notify, GatherMax: 1, EagerMax: 64 << 10}
			caps.Delivers = inOrder != notify
			t.Run(fmt.Sprintf("inorder=%v,notify=%v", inOrder, notify), func(t *testing.T) { linktest.Run(t, harness(caps)) })
		}
	}
}

func harness(caps link.Caps) linktest.Harness {
	return func(t *testing.T) *linktest.Pair {
		n := newNetwork(rand.New(rand.NewPCG(1, 2)), 2)
		n.caps, n.faultless = caps, true
		a, b := linktest.NewMemory(), linktest.NewMemory()
		n.ports[0].memory, n.ports[1].memory = a, b
		join := func(t *testing.T) {
			n.ports[0].Connect(1)
			n.now += 10_000_000
			n.dial(func(self, peer link.Peer, generation int) {
				if err := n.ports[self].Attach(peer, generation); err != nil {
					t.Fatal(err)
				}
			})
		}
		join(t)
		return &linktest.Pair{
			A: linktest.Side{Link: n.ports[0], Memory: a, Peer: 1},
			B: linktest.Side{Link: n.ports[1], Memory: b, Peer: 0},
			Pass: func() {
				n.now += 1000
				n.move()
			},
			Join:  join,
			Break: func(*testing.T) { n.breakLine(0, 1) },
		}
	}
}
