package peers

import (
	"sync"
	"time"
)

// attentionParts is into how many parts the time is divided in which a peer may be silent.
const attentionParts = 16

// attention counts time in which this process could have heard something, in parts: one
// that has taken much longer than its length counts twice that. What a stopped process, or
// one that waited for a processor, has not heard meanwhile is not the peer's fault.
type attention struct {
	part   time.Duration
	mu     sync.Mutex // guards what follows
	last   time.Time  // end of the last part
	passed time.Duration
	ended  bool
	timer  *time.Timer
}

// newAttention begins to count, until end.
func newAttention(part time.Duration) *attention {
	a := &attention{part: part, last: time.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(part, a.pass)
	return a
}

// pass counts a part.
func (a *attention) pass() {
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

// now is the time that has been counted.
func (a *attention) now() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.passed
}

// isOver reports whether d, as now counts it, is limit. Of what lies between two looks
// the first part and the last one may be missing.
func (a *attention) isOver(d, limit time.Duration) bool { return d+2*a.part >= limit }

func (a *attention) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.timer.Stop()
}
