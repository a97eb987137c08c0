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
	polls int           // looks without giving the core away
	only  bool          // and nothing else, for as long as it takes
	poll  time.Duration // the same in time, while it helps
	yield time.Duration
	nap   time.Duration // a sleep lasts no longer
	luck  luck
	crowd crowd
}

// pollFor is how long a call polls where each process of the job on this machine
// has a processor. Who waits longer can as well yield, and a sidecar that has lost
// its own processor may need this one.
const pollFor = 50 * time.Microsecond

// setWait chooses the policy. sharers are the job's processes on the sidecar's
// processors, 0: not known.
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

// luck is how polling has gone. Where nothing came in all the time for it the
// next waits begin with yields, more of them each time: nobody polls for long
// whose sidecar does not get its processor. Goroutines share it, and a lost update
// does not matter.
type luck struct{ skip, penalty atomic.Int32 }

const (
	penaltyMin = 16
	penaltyMax = 4096
)

func (l *luck) polls() bool {
	if n := l.skip.Load(); n > 0 {
		l.skip.Store(n - 1)
		return false
	}
	return true
}

func (l *luck) good() {
	if n := l.penalty.Load(); n > 0 {
		l.penalty.Store(n / 2)
	}
}

func (l *luck) bad() {
	n := min(max(2*l.penalty.Load(), penaltyMin), penaltyMax)
	l.penalty.Store(n)
	l.skip.Store(n)
}

// clockEvery is how many looks pass between two looks at clock and context.
const clockEvery = 64

// waitFor takes completions until over says so. over is called with the mutex
// held.
func (s *Session) waitFor(ctx context.Context, over func() bool) error {
	if end, err := s.spin(ctx, over); end || err != nil {
		return err
	}
	end, timed := ctx.Deadline()
	timed = timed && time.Until(end) < soon
	s.waits(timed)
	defer s.returns(timed)
	if s.wait.only {
		return s.pollOn(ctx, over)
	}
	if end, err := s.linger(ctx, over); end || err != nil {
		return err
	}
	return s.block(ctx, over)
}

// soon is when a deadline makes a wait one that ends by itself: a program that has given
// itself a day is in a deadlock until then.
const soon = time.Minute

// spinFor is how long a wait yields before the sidecar is told of it: what is
// over sooner is not worth the system call.
const spinFor = 100 * time.Microsecond

// longPoll is after how many looks a call that only polls says that it waits: some
// milliseconds.
const longPoll = 1 << 16

// spin polls, then yields, until it is worth telling the sidecar.
func (s *Session) spin(ctx context.Context, over func() bool) (end bool, err error) {
	if end, err := s.poll(ctx, over); end || err != nil {
		return end, err
	}
	var start time.Duration
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

// age is the time since the session was opened.
func (s *Session) age() time.Duration { return time.Since(s.begun) }

// poll looks without giving the processor away, for as long as the policy says.
func (s *Session) poll(ctx context.Context, over func() bool) (end bool, err error) {
	if s.wait.poll == 0 || !s.wait.luck.polls() {
		return false, nil
	}
	for begin := time.Duration(0); ; {
		for range clockEvery { // most are over before the clock matters
			if end, err := s.look(over); end || err != nil {
				s.wait.luck.good()
				return end, err
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if now := s.age(); begin == 0 {
			begin = now
		} else if now-begin >= s.wait.poll {
			s.wait.luck.bad()
			return false, nil
		}
	}
}

// pollOn looks until it is over.
func (s *Session) pollOn(ctx context.Context, over func() bool) error {
	for i := 1; ; i++ {
		for range clockEvery {
			if end, err := s.look(over); end || err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if i%(longPoll/clockEvery) == 0 {
			s.stays()
		}
	}
}

// linger yields for the rest of the time that the policy allows.
func (s *Session) linger(ctx context.Context, over func() bool) (end bool, err error) {
	for start := time.Now(); time.Since(start) < s.wait.yield-spinFor; s.stays() {
		for range clockEvery {
			if end, err := s.look(over); end || err != nil {
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
		mine := s.asleep(word)
		if end, err := s.look(over); end || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.behind.Load() { // nobody tells when the ring has room
			wake.Yield()
			continue
		}
		if err := wake.Wait(word, mine, s.wait.nap); err != nil {
			return err
		}
	}
}

// asleep says that a goroutine may be blocked, by a value that changes with each time that
// another one has woken it: between its look and its sleep that one may have taken what it
// waits for, and a third one have set the word for a sleep of its own.
func (s *Session) asleep(word *uint32) (value uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks()
	value = s.roused<<1 | 1
	atomic.StoreUint32(word, value)
	return value
}

// interrupt makes blocked goroutines look at their contexts.
func (s *Session) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.rouse()
	}
}
