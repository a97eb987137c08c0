package engine

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
)

// TestVanishedInADrain checks that a rank that ended because its job ends is not the cause
// of a failure.
func TestVanishedInADrain(t *testing.T) {
	e, _ := podOf(t, 2, core.Config{PodOf: []int32{0, 0, 1, 1}, Pods: 2}, &source{})
	closing(t, e)
	e.Drain(podlife.TextEnded + "interrupted")
	e.SessionGone(e.byRank[1].Session)
	for range 8 {
		e.Turn()
	}
	if f := e.Failure(); f == nil || f.Reason != podlife.TextEnded+"interrupted" {
		t.Errorf("failure %v", f)
	}
}
