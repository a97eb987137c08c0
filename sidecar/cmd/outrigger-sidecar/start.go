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

// Pauses between tries of something outside of the pod that is away: an issuer, a name
// server, the node's agent. One that is being replaced is away for seconds; thousands of
// sidecars may ask at once, and each draws its own pause.
const (
	awayPauseMin = 200 * time.Millisecond
	awayPauseMax = 10 * time.Second
	awayTold     = time.Minute // before the same cause is logged again
)

// start is how far a sidecar has come that starts. Nothing outside of the pod that is away
// ends a start, however long it is: the job's pendingDeadlineSeconds does.
type start struct {
	log *slog.Logger

	mu      sync.Mutex // guards what follows
	awaits  string     // empty: nothing outside of the pod
	ready   bool
	changed chan struct{} // closed, and made anew, with each change
}

func newStart(log *slog.Logger) *start { return &start{log: log, changed: make(chan struct{})} }

// state is obs.Starting's and pmi.Config's State.
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

// until tries again until try succeeds, fails with an error that is final, or ctx ends. It
// says meanwhile that the sidecar waits for what.
func (s *start) until(ctx context.Context, what string, final func(error) bool, try func(context.Context) error) error {
	defer s.set("", false)
	var told string
	var toldAt time.Time
	for pause := awayPauseMin; ; pause = min(2*pause, awayPauseMax) {
		err := try(ctx)
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for %s: %w; the last answer: %w", what, context.Cause(ctx), err)
		}
		// The port that a resolver was asked from is another one each time, and no news.
		text := oneLine(what + ": " + err.Error())
		news := withoutDigits(text) != withoutDigits(told)
		if news {
			told = text
			s.set(text, false)
		}
		if news || time.Since(toldAt) >= awayTold {
			toldAt = time.Now()
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

// oneLine is a text for people in one line of a bounded length: other programs have a part
// in it.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	return podlife.Cut(text, why.AwaitsMax, podlife.TextCut)
}
