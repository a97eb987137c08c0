package admission

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// ComplaintPause is the time between two lines of one kind: strangers can be refused
// thousands of times a second, and may not fill the log.
const ComplaintPause = time.Second

// Complaints are the refusals of one kind. Kinds do not hide each other: a
// program that connects and goes must not hide why a rank could not attach.
type Complaints struct {
	mu     sync.Mutex // guards what follows
	told   time.Time
	untold int
	now    func() time.Time // nil: time.Now
}

// Log warns of a refusal, but no more often than every ComplaintPause; the others
// are counted in the next line, and each is a line at the level debug.
func (c *Complaints) Log(log *slog.Logger, what string, args ...any) {
	now := time.Now
	if c.now != nil {
		now = c.now
	}
	c.mu.Lock()
	level, untold := slog.LevelDebug, 0
	if t := now(); t.Sub(c.told) >= ComplaintPause {
		level, untold, c.told, c.untold = slog.LevelWarn, c.untold, t, 0
	} else {
		c.untold++
	}
	c.mu.Unlock()
	if untold > 0 {
		args = append(args, "others_before", untold)
	}
	log.Log(context.Background(), level, what, args...)
}
