package outrigger

import (
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// crowd is whether the processor is shared with somebody who computes, or works as a
// sidecar does beside large messages. A yield that lasts crowdedAfter has given it to him,
// and he keeps it until his slice ends, milliseconds later. Who waits then sleeps
// instead, since a wake-up preempts and a yield does not. After crowdedMin, and twice as
// long each time, a yield is tried again. The engine does the like (engine/pace.go).
type crowd struct{ until, last atomic.Int64 }

const (
	crowdedAfter = 400 * time.Microsecond
	crowdedMin   = time.Millisecond
	crowdedMax   = 64 * time.Millisecond
)

// judge is told what a yield has cost that ended now.
func (c *crowd) judge(now, cost time.Duration) {
	last := time.Duration(c.last.Load())
	switch {
	case cost >= crowdedAfter:
		last = min(max(2*last, crowdedMin), crowdedMax)
		c.last.Store(int64(last))
		c.until.Store(int64(now + last))
	case last != 0:
		c.last.Store(0)
	}
}

func (c *crowd) here(now time.Duration) bool { return int64(now) < c.until.Load() }

// yield gives the processor away, if it will come back.
func (s *Session) yield(now time.Duration) bool {
	if s.wait.crowd.here(now) {
		return false
	}
	wake.Yield()
	then := s.age()
	s.wait.crowd.judge(then, then-now)
	return true
}
