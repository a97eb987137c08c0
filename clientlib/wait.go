package outrigger

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// waitPolicy is how a call waits: it polls, then polls and yields the CPU, then blocks until the
// sidecar wakes it (LAYOUT §8).
type waitPolicy struct {
	polls int           // number of polls before the first yield
	only  bool          // the call only polls, until the wait is over
	poll  time.Duration // time for which the call polls before it yields
	yield time.Duration // time for which the call polls and yields before it blocks
	nap   time.Duration // maximum time of a sleep

	backoff backoff
}

// pollFor is how long a call polls without yielding if each process of the job on this machine has
// a CPU. After that time a yield costs no more than the wait has, and a sidecar that has lost its
// own CPU may need this one.
const pollFor = 50 * time.Microsecond

// setWait sets the policy by its name. sharers is the number of the job's processes on the
// sidecar's CPUs, or 0 if it is not known.
func (w *waitPolicy) setWait(name string, sharers int) error {
	w.nap = napMax
	switch name {
	case "", "yield":
		w.polls, w.yield = 4, 300*time.Microsecond
		if name == "" && sharers > 0 && wake.Processors() >= sharers {
			w.poll = pollFor
		}
	case "poll":
		w.polls, w.only = longPoll, true
	case "block":
	default:
		return fmt.Errorf("%w: wait policy %q, want poll, yield or block", ErrInvalid, name)
	}
	return nil
}

// clockEvery is the number of polls between two checks of clock and context.
const clockEvery = 64

// waitFor handles completions until over returns true. over is called with the mutex held.
func (s *Session) waitFor(ctx context.Context, over func() bool) error {
	if end, err := s.spin(ctx, over); end || err != nil {
		return err
	}
	end, timed := ctx.Deadline()
	timed = timed && time.Until(end) < soon
	s.beginWait(timed)
	defer s.endWait(timed)
	if s.wait.only {
		return s.pollOn(ctx, over)
	}
	if end, err := s.keepYielding(ctx, over); end || err != nil {
		return err
	}
	return s.block(ctx, over)
}

// soon bounds the deadline of a wait that counts as one that ends by itself. A wait with a later
// deadline, such as a day, takes part in a deadlock until then.
const soon = time.Minute

// spinFor is how long a wait yields before it is published to the sidecar: for a shorter wait that
// is not worth its cost.
const spinFor = 100 * time.Microsecond

// longPoll is the number of polls after which a call that only polls publishes that it waits: some
// milliseconds.
const longPoll = 1 << 16

// spin polls, then yields, for at most spinFor after it has polled.
func (s *Session) spin(ctx context.Context, over func() bool) (end bool, err error) {
	if end, err := s.poll(ctx, over); end || err != nil {
		return end, err
	}
	var start time.Duration
	for i := 0; i <= s.wait.polls || s.wait.yield > 0; i++ {
		if end, err := s.pollOnce(over); end || err != nil {
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
		now := s.age()
		if start == 0 {
			start = now
		}
		if now-start >= min(spinFor, s.wait.yield) || !s.yield(now) {
			break
		}
	}
	return false, nil
}

// age returns the time since the session was opened.
func (s *Session) age() time.Duration { return time.Since(s.begun) }

// poll polls without yielding, for the time that the policy sets.
func (s *Session) poll(ctx context.Context, over func() bool) (end bool, err error) {
	if s.wait.poll == 0 || s.wait.backoff.last.Load() > 0 && s.wait.backoff.active(s.age()) { // most waits read no clock
		return false, nil
	}
	for begin := time.Duration(0); ; {
		for range clockEvery { // most waits are over before the clock is read
			if end, err := s.pollOnce(over); end || err != nil {
				return end, err
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if now := s.age(); begin == 0 {
			begin = now
		} else if now-begin >= s.wait.poll {
			return false, nil
		}
	}
}

// pollOn polls until the wait is over.
func (s *Session) pollOn(ctx context.Context, over func() bool) error {
	for i := 1; ; i++ {
		for range clockEvery {
			if end, err := s.pollOnce(over); end || err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if i%(longPoll/clockEvery) == 0 {
			s.refreshWait()
		}
	}
}

// keepYielding polls and yields for the rest of the time that the policy allows.
func (s *Session) keepYielding(ctx context.Context, over func() bool) (end bool, err error) {
	for start := time.Now(); time.Since(start) < s.wait.yield-spinFor; s.refreshWait() {
		for range clockEvery {
			if end, err := s.pollOnce(over); end || err != nil {
				return end, err
			}
			if !s.yield(s.age()) {
				return false, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
	return false, nil
}

// pollOnce polls once: it handles completions and reports whether the wait is over. It returns an error
// if the wait cannot end.
func (s *Session) pollOnce(over func() bool) (bool, error) {
	gone := s.gone.Load() // before the poll, which sees completions that the sidecar published before it ended
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

// napMax bounds a sleep: a sidecar that is killed between clearing the word and waking its sleepers
// wakes no goroutine.
const napMax = 100 * time.Millisecond

// block sleeps on the futex between polls. The word is set before the poll, and the engine
// publishes before it reads the word: one of the two sees the other's store (LAYOUT §8).
func (s *Session) block(ctx context.Context, over func() bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	word := s.control.Waiting()
	for {
		mine := s.setWaitingWord(word)
		if end, err := s.pollOnce(over); end || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.backlog.Load() { // nothing wakes this goroutine when the ring has room
			wake.Yield()
			continue
		}
		if err := wake.Wait(word, mine, s.wait.nap); err != nil {
			return err
		}
	}
}

// setWaitingWord sets the waiting word: a goroutine may be blocked. The value of the word changes
// whenever a goroutine of this process wakes the sleepers. With a fixed value, between the poll and
// the sleep of one goroutine, a second goroutine could handle the completion that the first one waits
// for and clear the word, a third goroutine could set the word again, and the first one would sleep.
func (s *Session) setWaitingWord(word *uint32) (value uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishPoll()
	value = s.wakeups<<1 | 1
	atomic.StoreUint32(word, value)
	return value
}

// interrupt wakes blocked goroutines, so that they check their contexts.
func (s *Session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wakeSleepers()
	}
}
