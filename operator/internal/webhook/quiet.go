package webhook

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// The controller of the webhook's certificate (cert-controller) logs errors whenever
// the certificate is made: it reads the Secret before it has filled it, and replicas
// fill it at the same time, of which the API server refuses all but one. It tries
// again, and the webhook is ready only when it has its certificate.

// Names in the log records of that controller, its own and those of controller-runtime.
const (
	rotatorLogger     = "cert-rotation"
	rotatorController = "cert-rotator"
)

// errorsPass is how long errors of the rotator are logged as information, from the
// first of them. After a pause of errorsPause, the next error is a first one again.
const (
	errorsPass  = 2 * time.Minute
	errorsPause = 10 * time.Minute
)

// Quiet returns a handler of log records that logs transient errors of the
// certificate's controller as information, and passes all other records to h unchanged.
func Quiet(h slog.Handler, now func() time.Time) slog.Handler {
	return &quiet{h, false, &errorRun{now: now}}
}

type quiet struct {
	slog.Handler
	rotator bool // its records are from the rotator
	errors  *errorRun
}

// errorRun holds the times of the rotator's errors.
type errorRun struct {
	now func() time.Time

	mu          sync.Mutex // guards what follows
	first, last time.Time
}

// passes notes an error, and reports whether it is expected to be transient.
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

// Handle logs a record, at its own level or as information.
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

// WithAttrs returns a handler that adds attributes to its records.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	mine := ofRotator(func(yield func(slog.Attr) bool) { slices.Values(attrs)(yield) })
	return &quiet{q.Handler.WithAttrs(attrs), q.rotator || mine, q.errors}
}

// WithGroup returns a handler that puts its attributes into a group.
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
