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
	polls int // looks without giving the core away
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

// clockEvery is how many looks pass between two looks at clock and context.
const clockEvery = 64

// waitFor takes completions until over says so. over is called with the mutex
// held.
func (s *Session) waitFor(ctx context.Context, over func() bool) error {
	s.enters()
	if end, err := s.spin(ctx, over); end || err != nil {
		return err
	}
	s.waits()
	defer s.returns()
	if end, err := s.linger(ctx, over); end || err != nil {
		return err
	}
	return s.block(ctx, over)
}

// spinFor is how long a wait yields before the sidecar is told of it: what is
// over sooner is not worth the system call.
const spinFor = 100 * time.Microsecond

// spin polls, then yields, until it is worth telling the sidecar.
func (s *Session) spin(ctx context.Context, over func() bool) (end bool, err error) {
	var start time.Time
	for i := 0; i <= s.wait.polls || s.wait.yield > 0; i++ {
		if end, err := s.look(over); end || err != nil {
			return end, err
		}
		if i%clockEvery == clockEvery-1 {
			if err := ctx.Err(); err != nil {
				return false, err
			}
		}
		if i < s.wait.polls {
			continue
		}
		if i%clockEvery == 0 {
			now := time.Now()
			if start.IsZero() {
				start = now
			}
			if now.Sub(start) >= min(spinFor, s.wait.yield) {
				break
			}
		}
		wake.Yield()
	}
	return false, nil
}

// linger yields for the rest of the time that the policy allows.
func (s *Session) linger(ctx context.Context, over func() bool) (end bool, err error) {
	for start := time.Now(); time.Since(start) < s.wait.yield-spinFor; s.waits() {
		for range clockEvery {
			if end, err := s.look(over); end || err != nil {
				return end, err
			}
			wake.Yield()
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// look takes what has come, and reports whether the wait is over or cannot
// end.
func (s *Session) look(over func() bool) (bool, error) {
	gone := s.gone.Load() // before the look, which sees what the sidecar said before it ended
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.progress(); err != nil {
		return false, err
	}
	if over() {
		return true, nil
	}
	if gone {
		return false, s.withFailure(ErrSidecarGone)
	}
	return false, nil
}

// napMax bounds a sleep, so that a sidecar that was stopped in the middle of a
// wake-up costs time and no more.
const napMax = 100 * time.Millisecond

// block sleeps on the futex between looks. The word is set before the look,
// and the engine publishes before it looks at the word (LAYOUT §8).
func (s *Session) block(ctx context.Context, over func() bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	word := s.control.Waiting()
	for {
		atomic.StoreUint32(word, 1)
		if end, err := s.look(over); end || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := wake.Wait(word, 1, napMax); err != nil {
			return err
		}
	}
}

// interrupt makes blocked goroutines look at their contexts.
func (s *Session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.rouse()
	}
}
