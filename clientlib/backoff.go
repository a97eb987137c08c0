package outrigger

import (
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// backoff replaces yields by sleeps while another thread computes on the same CPU. A yield that
// takes longer than backoffAfter has given the CPU to a thread that computes, or to a sidecar that
// moves large messages, and that keeps the CPU until its time slice ends, milliseconds later. A
// waiting goroutine then sleeps instead, because a thread that is woken preempts the other one and
// a thread that yields does not. A yield is tried again after backoffMin, and after twice as long
// each time up to backoffMax, so that a CPU that is free again is noticed within 64 ms. The engine
// has a similar rule (engine/pace.go), and the C client the same one (clientlib/c/src/wait.c).
type backoff struct{ until, last atomic.Int64 }

const (
	backoffAfter = 400 * time.Microsecond
	backoffMin   = time.Millisecond
	backoffMax   = 64 * time.Millisecond
)

// update starts, doubles or ends the back-off by what a yield that ended now has cost.
func (b *backoff) update(now, cost time.Duration) {
	last := time.Duration(b.last.Load())
	switch {
	case cost >= backoffAfter:
		last = min(max(2*last, backoffMin), backoffMax)
		b.last.Store(int64(last))
		b.until.Store(int64(now + last))
	case last != 0:
		b.last.Store(0)
	}
}

// active reports whether waits sleep instead of yielding.
func (b *backoff) active(now time.Duration) bool { return int64(now) < b.until.Load() }

// yield gives the CPU away. It reports false, and does nothing, during a back-off.
func (s *Session) yield(now time.Duration) bool {
	if s.wait.backoff.active(now) {
		return false
	}
	wake.Yield()
	then := s.age()
	s.wait.backoff.update(then, then-now)
	return true
}
