package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/why"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/certify"
)

// Pauses between tries to reach a service outside of the pod that does not answer: an issuer,
// a name server, the node's agent. A service that is being replaced is back within seconds.
// Thousands of sidecars may ask at once, so that each draws a random pause.
const (
	retryPauseMin = 200 * time.Millisecond
	retryPauseMax = 10 * time.Second
	logAgainAfter = time.Minute // before the same cause is logged again
)

// start is the state of a sidecar that starts. The outage of a service outside of the pod
// does not end a start, however long it lasts; the job's pendingDeadlineSeconds does.
type start struct {
	log *slog.Logger

	mu      sync.Mutex // guards the fields below
	awaits  string     // service outside of the pod that the sidecar waits for; "": none
	ready   bool
	changed chan struct{} // closed, and replaced by a new one, on each change
}

func newStart(log *slog.Logger) *start { return &start{log: log, changed: make(chan struct{})} }

// state returns the state and a channel that is closed when it changes. It implements State
// of obs.Starting and of pmi.Config.
func (s *start) state() (awaits string, ready bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaits, s.ready, s.changed
}

func (s *start) set(awaits string, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.awaits == awaits && s.ready == ready {
		return
	}
	s.awaits, s.ready = awaits, ready
	close(s.changed)
	s.changed = make(chan struct{})
}

// retry calls try until it succeeds, fails with an error that is final, or ctx ends. In the
// meantime the state says that the sidecar waits for what.
func (s *start) retry(ctx context.Context, what string, final func(error) bool, try func(context.Context) error) error {
	defer s.set("", false)
	var logged string
	var loggedAt time.Time
	for pause := retryPauseMin; ; pause = min(2*pause, retryPauseMax) {
		err := try(ctx)
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %w; the last answer: %w", what, context.Cause(ctx), err)
		}
		// Digits do not count: the source port of a query to a resolver changes each time.
		text := oneLine(what + ": " + err.Error())
		changed := withoutDigits(text) != withoutDigits(logged)
		if changed {
			logged = text
			s.set(text, false)
		}
		if changed || time.Since(loggedAt) >= logAgainAfter {
			loggedAt = time.Now()
			s.log.Warn("the sidecar waits", "for", what, "cause", err)
		}
		wait := pause/2 + rand.N(pause)
		if later := new(certify.RetryLater); errors.As(err, &later) {
			wait += later.After
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func withoutDigits(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, text)
}

// oneLine returns text as one line of bounded length. The text has parts from other
// programs, which are not trusted.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	return podlife.Cut(text, why.AwaitsMax, podlife.TextCut)
}
