//go:build !race

package engine

import "testing"

// TestNoAllocation checks that a small message causes no allocation from submission to
// completion.
func TestNoAllocation(t *testing.T) {
	e, apps := pod(t, 2)
	closing(t, e)
	for range 100 {
		batch(t, e, apps, 64)
	}
	if n := testing.AllocsPerRun(200, func() { batch(t, e, apps, 64) }); n != 0 {
		t.Fatalf("%v allocations for 64 messages", n)
	}
}
