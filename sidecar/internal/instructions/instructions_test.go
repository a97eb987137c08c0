//go:build linux && amd64 && !race

package instructions

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

var sum int

// loop executes a whole number of instructions for each iteration.
//
//go:noinline
func loop(n int) {
	for i := range n {
		sum ^= i
	}
}

// TestCount checks that counts are exact: equal for equal work, larger by a whole number for
// each further iteration of a loop, and equal while another goroutine runs.
func TestCount(t *testing.T) {
	counts := Count(t, func(m *Meter) {
		var stop atomic.Bool
		defer stop.Store(true)
		go func() {
			for !stop.Load() {
				runtime.Gosched()
			}
		}()
		for _, n := range []int{0, 100, 100, 200, 600} {
			m.Count(func() { loop(n) })
		}
	})
	if Stepped() {
		return
	}
	t.Log("instructions:", counts)
	if len(counts) != 5 || counts[0] <= 0 || counts[1] != counts[2] {
		t.Fatalf("instructions of a loop: %d, want five numbers, the second and the third the same", counts)
	}
	if each := (counts[3] - counts[2]) / 100; each < 1 || counts[3] != counts[2]+100*each || counts[4] != counts[2]+500*each {
		t.Errorf("instructions of a loop: %d, want a whole number for each iteration", counts)
	}
}

// TestFailedRun checks that a failure in the stepped process is the test's, and that its
// message arrives.
func TestFailedRun(t *testing.T) {
	if Stepped() {
		Count(t, func(m *Meter) {
			m.Count(func() {})
			t.Fatal("after a count")
		})
		return
	}
	if _, err := step(t); err == nil || !strings.Contains(err.Error(), "after a count") {
		t.Errorf("the error is %v", err)
	}
}
