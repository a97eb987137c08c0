//go:build linux && amd64 && !race

package node

import (
	"fmt"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/instructions"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestIdlePeersAddNoInstructions checks that a Poll that hands over a frame takes the same
// number of instructions with 15 and with 63 idle peers: they share one look at the sockets.
func TestIdlePeersAddNoInstructions(t *testing.T) {
	const polls = 16
	average := map[int]int{}
	for _, idle := range []int{0, 15, 63} {
		t.Run(fmt.Sprint(idle), func(t *testing.T) {
			counts := instructions.Count(t, func(m *instructions.Meter) {
				a, sink := newSide(t, idle+1), &counting{}
				t.Cleanup(func() { _ = a.l.Close() }) // it waits for goroutines
				var busy *side
				for peer := range idle + 1 {
					b := newSide(t, idle+1)
					t.Cleanup(func() { _ = b.l.Close() })
					joinAs(t, a, link.Peer(peer), b, 0)
					busy = b
				}
				frame := []*link.Frame{{Head: wire.Header{Type: wire.Heartbeat}}}
				poll := func(do func(func())) {
					if busy.l.Post(0, frame) != 1 {
						t.Fatal("the frame is not accepted")
					}
					had := sink.frames
					do(func() { a.l.Poll(sink) })
					if sink.frames != had+1 {
						t.Fatalf("%d frames in a Poll", sink.frames-had)
					}
				}
				for range 50_000 {
					poll(func(f func()) { f() })
				}
				for range polls {
					poll(m.Count)
				}
			})
			if instructions.Stepped() {
				return
			}
			sum := 0
			for _, n := range counts {
				sum += n
			}
			average[idle] = sum / polls
			t.Logf("%d instructions a Poll with %d idle peers", average[idle], idle)
		})
	}
	if more := average[63] - average[15]; average[15] > 0 && more > 48 {
		t.Errorf("48 further idle peers add %d instructions to a Poll", more)
	}
}
