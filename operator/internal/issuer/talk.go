package issuer

import (
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Lines a second of those that are issued certificates, and of those that are
// not: who asks without end does not fill the log.
const (
	issuedRate, issuedBurst   = 100, 5000 // a job of thousands of pods starts at once
	refusedRate, refusedBurst = 5, 50
)

// talk is a kind of lines in the log, of which there are not too many.
type talk struct {
	limit *rate.Limiter
	left  atomic.Int64 // out since the last line
}

func (t *talk) say(log *slog.Logger, text string, about ...any) {
	if !t.limit.Allow() {
		t.left.Add(1)
		return
	}
	if n := t.left.Swap(0); n > 0 {
		about = append(about, "unsaid", n)
	}
	log.Info(text, about...)
}
