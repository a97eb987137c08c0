package webhook

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// The controller of the webhook's certificate (cert-controller) has errors whenever the
// certificate is made: it looks at the Secret before it has filled it, and replicas fill it at
// the same time, of which the API server refuses all but one. It tries again, and the webhook
// counts as ready only when it has its certificate.

// Names by which that controller logs, and by which controller-runtime does for it.
const (
	rotatorLogger     = "cert-rotation"
	rotatorController = "cert-rotator"
)

// Errors of the rotator are information for so long after the first of them; those that come
// after a pause of errorsPause are the first of others.
const (
	errorsPass  = 2 * time.Minute
	errorsPause = 10 * time.Minute
)

// Quiet is a handler of log records that logs errors of the certificate's controller which
// pass by themselves as information, and hands on all else to h.
func Quiet(h slog.Handler, now func() time.Time) slog.Handler {
	return &quiet{h, false, &errorRun{now: now}}
}

type quiet struct {
	slog.Handler
	rotator bool // its records are the rotator's
	errors  *errorRun
}

// errorRun is when the rotator has had errors.
type errorRun struct {
	now func() time.Time

	mu          sync.Mutex // guards what follows
	first, last time.Time
}

// passes notes an error, and reports whether it is to be expected to pass.
func (e *errorRun) passes() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.now()
	if at.Sub(e.last).Abs() > errorsPause {
		e.first = at
	}
	e.last = at
	return at.Sub(e.first).Abs() < errorsPass
}

// Handle logs a record, at its level or as information.
func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && (q.rotator || ofRotator(r.Attrs)) && q.errors.passes() {
		if r.Level = slog.LevelInfo; !q.Enabled(ctx, r.Level) {
			return nil
		}
		r = r.Clone()
		r.AddAttrs(slog.String("next", "it is tried again"))
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler whose records have more attributes.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	mine := ofRotator(func(yield func(slog.Attr) bool) { slices.Values(attrs)(yield) })
	return &quiet{q.Handler.WithAttrs(attrs), q.rotator || mine, q.errors}
}

// WithGroup returns a handler whose attributes are in a group.
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.rotator, q.errors}
}

// ofRotator reports whether attributes name the rotator.
func ofRotator(each func(func(slog.Attr) bool)) (is bool) {
	each(func(a slog.Attr) bool {
		text := a.Value.String()
		is = is || a.Key == "logger" && (text == rotatorLogger || strings.HasPrefix(text, rotatorLogger+"/")) || a.Key == "controller" && text == rotatorController
		return !is
	})
	return is
}
