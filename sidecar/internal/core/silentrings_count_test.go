//go:build linux && amd64 && !race

package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/instructions"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/silence"
)

// TestSilentRingsCostLittle counts the instructions of polls that find nothing: 64 silent rings take
// less than a tenth of what they take while they are visited. By the clock of the test a poll takes
// 200 ns, as an idle turn of an engine does, so that one poll of a hundred visits all.
func TestSilentRingsCostLittle(t *testing.T) {
	const perLook = 100
	cases := []struct{ peers, before, polls int }{{64, 1, 2}, {64, 20_000, perLook}} // polls before the first one that is counted
	counts := instructions.Count(t, func(m *instructions.Meter) {
		for _, c := range cases {
			x := newRingCrowd(t, c.peers, placing)
			x.core.Flush(x.now, x)
			for n := range c.before + c.polls {
				x.now += int64(silence.LookInterval) / perLook
				if n < c.before {
					x.core.PollMemory(x.now)
				} else {
					m.Count(func() { x.core.PollMemory(x.now) })
				}
			}
		}
	})
	if instructions.Stepped() {
		return
	}
	if len(counts) != 2+perLook {
		t.Fatalf("%d polls were counted, want %d", len(counts), 2+perLook)
	}
	visited, silent := float64(counts[1]), 0.0
	for _, n := range counts[2:] {
		silent += float64(n) / perLook
	}
	t.Logf("%.0f instructions a poll with 64 rings that are visited, %.0f with 64 silent ones", visited, silent)
	if silent > visited/10 {
		t.Errorf("silent rings take %.0f instructions, want at most a tenth of %.0f", silent, visited)
	}
}
