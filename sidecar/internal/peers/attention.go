package peers

import (
	"sync"
	"time"
)

// attentionParts is the number of parts into which the time is divided in which a peer
// may be silent.
const attentionParts = 16

// attention measures the time in which this process could have read a byte, in parts: a
// part that took much longer than its length counts as twice its length. A peer must not
// fail because this process was stopped or waited for a processor.
type attention struct {
	part   time.Duration
	mu     sync.Mutex // guards the fields below
	last   time.Time  // end of the last part
	passed time.Duration
	ended  bool
	timer  *time.Timer
}

// newAttention starts the measurement, until stop.
func newAttention(part time.Duration) *attention {
	a := &attention{part: part, last: time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(part, a.tick)
	return a
}

// tick counts a part.
func (a *attention) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	now := time.Now()
	a.passed += min(now.Sub(a.last), 2*a.part)
	a.last = now
	a.timer.Reset(a.part)
}

// elapsed returns the measured time.
func (a *attention) elapsed() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.passed
}

// isOver reports whether d, a difference of two values of elapsed, has reached limit. The
// first part and the last one may be missing in d.
func (a *attention) isOver(d, limit time.Duration) bool { return d+2*a.part >= limit }

func (a *attention) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.timer.Stop()
}
