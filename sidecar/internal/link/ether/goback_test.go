package ether

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link/linktest"
)

// TestLostWindow loses a whole window of packets, and in two cases their first repetitions, too. It
// checks that the packets come again in slow start: the rounds grow with the logarithm of the
// window, and no more packets are under way than the window allows.
func TestLostWindow(t *testing.T) {
	const rounds = 12 // 1 + 2 + 4 ... + 256 packets, and three that congestion avoidance takes
	for _, probes := range []int{0, 1, 2} {
		n := quiet()
		a, b := simulated(t, n)
		meet(t, a, b, 1452)
		x, y := linktest.NewSink(a.m), linktest.NewSink(b.m)
		s := &a.l.conns[1].snd
		sent := fillWindow(t, n, a, b, x, y)
		n.Loss = 1
		a.l.Post(1, framesOf(a.m, windowMax, 1300, sent+1))
		a.l.commit()
		if s.next-s.base < windowMax/2 {
			t.Fatalf("%d packets are under way, want a large window", s.next-s.base)
		}
		n.Loss = 0
		dropped := 0
		n.Drop = func(p []byte) bool {
			if kindOf(p) != kindStream || dropped == probes { // only one side has frames
				return false
			}
			dropped++
			return true
		}
		begun, times := n.Now, int64(0)
		for i, wait := 0, max(s.rtt+4*s.vary, rtoLeast); i <= probes; i, wait = i+1, 2*wait {
			times += wait
		}
		for y.Frames() < sent+windowMax && n.Now-begun < 60e9 {
			step(n, a, b, x, y)
			if s.flight() > max(int(s.window), 1)+1 && s.lost > 0 { // and the first packet
				t.Fatalf("%d packets are under way, the window is %v", s.flight(), s.window)
			}
		}
		if took, most := n.Now-begun, times+rounds*(ackDelay+1_000_000+2*n.Delay); y.Frames() != sent+windowMax || took > most {
			t.Errorf("%d lost repetitions: %d of %d frames came in %d ms, want at most %d ms", probes, y.Frames()-sent, windowMax, took/1e6, most/1e6)
		}
		closeSimulated(t, n, a)
		closeSimulated(t, n, b)
	}
}

// fillWindow sends frames until the window is the largest, and all have come. It returns their
// number.
func fillWindow(t *testing.T, n *Net, a, b *side, x, y *linktest.Sink) (sent int) {
	t.Helper()
	s := &a.l.conns[1].snd
	for s.window < windowMax || !s.idle() {
		if s.window < windowMax && s.end-s.base < windowMax {
			sent += a.l.Post(1, framesOf(a.m, 16, 1300, sent+1))
		}
		step(n, a, b, x, y)
		if n.Now > 60e9 {
			t.Fatalf("after a minute the window is %v", s.window)
		}
	}
	return sent
}
