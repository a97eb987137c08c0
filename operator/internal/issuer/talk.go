package issuer

import (
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// Log lines per second about issued certificates and about refusals: a caller that asks
// without end must not fill the log.
const (
	issuedRate, issuedBurst   = 100, 5000 // a job of thousands of pods starts at once
	refusedRate, refusedBurst = 5, 50
)

// talk writes one kind of log lines at a bounded rate.
type talk struct {
	limit *rate.Limiter
	left  atomic.Int64 // lines that were omitted since the last one
}

// warn logs a line within the rate, with the number of lines that were omitted before it.
func (t *talk) warn(log *slog.Logger, text string, about ...any) {
	if !t.limit.Allow() {
		t.left.Add(1)
		return
	}
	if n := t.left.Swap(0); n > 0 {
		about = append(about, "unsaid", n)
	}
	log.Info(text, about...)
}
