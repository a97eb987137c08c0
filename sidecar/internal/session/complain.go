package session

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// complaintPause is the time between two lines of one kind: whoever reaches the
// socket can be refused thousands of times a second, and may not fill the log.
const complaintPause = time.Second

// complaints are the refusals of one kind. Kinds do not hide each other: a
// program that connects and goes must not hide why a rank could not attach.
type complaints struct {
	mu     sync.Mutex // guards what follows
	told   time.Time
	untold int
	now    func() time.Time // nil: time.Now
}

// log warns of a refusal, but no more often than every complaintPause; the others
// are counted in the next line, and each is a line for who debugs.
func (c *complaints) log(log *slog.Logger, cause error) {
	now := time.Now
	if c.now != nil {
		now = c.now
	}
	c.mu.Lock()
	level, untold := slog.LevelDebug, 0
	if t := now(); t.Sub(c.told) >= complaintPause {
		level, untold, c.told, c.untold = slog.LevelWarn, c.untold, t, 0
	} else {
		c.untold++
	}
	c.mu.Unlock()
	args := []any{"cause", cause}
	if untold > 0 {
		args = append(args, "others_before", untold)
	}
	log.Log(context.Background(), level, "application refused", args...)
}
