package outrigger

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// waitPolicy is how a call waits: poll, then poll and yield the core, then
// block until the sidecar wakes it (DESIGN §8).
type waitPolicy struct {
	polls int
	yield time.Duration
}

func parseWait(name string) (waitPolicy, error) {
	switch name {
	case "", "yield":
		return waitPolicy{polls: 4, yield: 300 * time.Microsecond}, nil
	case "poll":
		return waitPolicy{polls: 1 << 62}, nil
	case "block":
		return waitPolicy{}, nil
	}
	return waitPolicy{}, fmt.Errorf("%w: wait policy %q, want poll, yield or block", ErrInvalid, name)
}

// clockEvery is how many yields pass between two looks at the clock.
const clockEvery = 64

// waitDone waits for one operation.
func (s *Session) waitDone(ctx context.Context, o *op, gen uint32) error {
	for i := 0; ; i++ {
		s.mu.Lock()
		err := s.progress()
		over := o.done || o.gen != gen
		s.mu.Unlock()
		if over || err != nil {
			return err
		}
		if i >= s.wait.polls {
			break
		}
	}
	return s.waitFor(ctx, func() bool { return o.done || o.gen != gen })
}

// waitFor takes completions until over says so. over is called with the mutex
// held.
func (s *Session) waitFor(ctx context.Context, over func() bool) error {
	var start time.Time
	for i := 0; ; i++ {
		s.mu.Lock()
		err := s.progress()
		end := over()
		s.mu.Unlock()
		switch {
		case end || err != nil:
			return err
		case s.gone.Load():
			return s.lastWords(over)
		case i < s.wait.polls:
			continue
		}
		if i%clockEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			now := time.Now()
			if start.IsZero() {
				start = now
			}
			if now.Sub(start) >= s.wait.yield {
				break
			}
		}
		wake.Yield()
	}
	return s.block(ctx, over)
}

// lastWords looks once more at what the sidecar said before it ended.
func (s *Session) lastWords(over func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.progress(); err != nil || over() {
		return err
	}
	return s.withFailure(ErrSidecarGone)
}

// block sleeps on the futex between looks. The word is set before the last
// look, and the engine publishes before it looks at the word (LAYOUT §8).
func (s *Session) block(ctx context.Context, over func() bool) error {
	word := s.control.Waiting()
	stop := context.AfterFunc(ctx, func() {
		atomic.StoreUint32(word, 0)
		_ = wake.Wake(word) // finds nobody if the wait is over
	})
	defer stop()
	for {
		atomic.StoreUint32(word, 1)
		s.mu.Lock()
		err := s.progress()
		end := over()
		s.mu.Unlock()
		switch {
		case end || err != nil:
			return err
		case s.gone.Load():
			return s.lastWords(over)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		// Several goroutines may share the word: one of them can clear it
		// for all, so that none sleeps longer than this without a look.
		if err := wake.Wait(word, 1, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
