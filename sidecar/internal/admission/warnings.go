package admission

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// WarningInterval is the minimum time between two warnings of one kind: connections can
// be refused thousands of times a second, and must not fill the log.
const WarningInterval = time.Second

// Warnings limits the rate of warnings of one kind. Each kind has its own: a program that
// connects and disconnects must not hide why a rank could not attach.
type Warnings struct {
	mu      sync.Mutex // guards the fields below
	last    time.Time
	dropped int
	now     func() time.Time // nil: time.Now
}

// Log logs a refusal as a warning at most once each WarningInterval; the next warning has
// the number of the others, each of which is logged at the level debug.
func (c *Warnings) Log(log *slog.Logger, what string, args ...any) {
	now := time.Now
	if c.now != nil {
		now = c.now
	}
	c.mu.Lock()
	level, dropped := slog.LevelDebug, 0
	if t := now(); t.Sub(c.last) >= WarningInterval {
		level, dropped, c.last, c.dropped = slog.LevelWarn, c.dropped, t, 0
	} else {
		c.dropped++
	}
	c.mu.Unlock()
	if dropped > 0 {
		args = append(args, "others_before", dropped)
	}
	log.Log(context.Background(), level, what, args...)
}
