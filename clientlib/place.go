package outrigger

import (
	"sync/atomic"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

const (
	// placeBytes is the smallest message of which the sidecar is told where
	// this process is. A smaller one is over before that could matter.
	placeBytes = 32 << 10
	// placeEvery is how often it is found out, which takes three system calls.
	placeEvery = 100 * time.Microsecond
	// computesMin is the processor time between submitting and waiting that
	// is computing. A thread that was put off before it came to wait has used
	// none, however late it is.
	computesMin = 40 * time.Microsecond
	// submitMax is what each further submission before the wait may have used
	// of it: posting many messages is not computing.
	submitMax = 30 * time.Microsecond
	// beside is how many bytes are transferred while a nanosecond of computing
	// does not count: it is not worth hiding a sixteenth of a transfer.
	beside = 64
	// idleMax is how many waits without computing it takes to be a process
	// that does not compute beside its messages. Programs do both in turn.
	idleMax = 16
	// againMax is within how many waits such a process computes again if it has begun
	// to, and againAfter how much later at least. Once is not told: what a host takes of
	// this machine's processor counts as the thread's own time, and would keep sidecars
	// off this one, and leave them none.
	againMax   = 8
	againAfter = time.Millisecond
)

// place is what the sidecar is told of where this process is, so that it does
// not carry out large transfers where the process computes (LAYOUT §8.1). With
// several goroutines the last word stands: it is a hint. Guarded by
// Session.mu.
type place struct {
	wanted bool          // the sidecar looks at it
	left   atomic.Bool   // a large message was submitted, and no wait has begun; read without the mutex
	at     time.Duration // the thread's time at that
	found  time.Time     // the time at that
	bytes  int           // of the message
	after  int           // descriptors submitted since then
	lets   bool          // since then others have not been let run that wait for the processor
	idle   int           // waits without computing since the last one with it
	began  time.Time     // when it last computed that had not for many of them

	waiters int // goroutines in calls that have waited for a while
	timed   int // those of them that go on at a time, whatever comes
}

// leaves says where the caller goes on while n bytes are transferred.
// Preconditions: s.mu is held, and the session is not closed.
func (s *Session) leaves(n int) {
	if !s.place.wanted || n < placeBytes || time.Since(s.place.found) < placeEvery {
		return
	}
	s.place.found = time.Now()
	s.control.SetPlace(s.control.Place().On(wake.CPU()))
	s.place.at, s.place.bytes, s.place.after = wake.ThreadTime(), n, 0
	s.place.left.Store(true)
	s.place.lets = s.control.Place().Computes()
}

// enters says whether the caller has computed since it left. Small messages
// pay for a look at a flag.
func (s *Session) enters() {
	if !s.place.left.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.place.left.Store(false)
	s.place.idle++
	least := computesMin + time.Duration(s.place.after)*submitMax + time.Duration(s.place.bytes/beside)
	used := wake.ThreadTime() - s.place.at
	switch {
	case used < least || used > time.Since(s.place.found): // more is another thread's
		if s.place.idle == idleMax {
			s.control.SetPlace(s.control.Place().Computing(false))
		}
	case s.computedOnce():
		s.place.idle = idleMax - againMax
	default:
		s.place.idle = 0
		s.control.SetPlace(s.control.Place().Computing(true))
	}
}

// computedOnce reports that a process which did not compute in many waits has done so
// once. Preconditions: s.mu is held.
func (s *Session) computedOnce() bool {
	if s.control.Place().Computes() {
		return false
	}
	if s.place.idle > idleMax {
		s.place.began = time.Now()
	}
	return time.Since(s.place.began) < againAfter
}

// waits says that the caller waits, until it returns; timed: or until a time that
// is soon, with which it goes on even if nothing comes.
func (s *Session) waits(timed bool) {
	s.mu.Lock()
	s.place.waiters++
	if timed {
		if s.place.timed++; s.place.timed == 1 && s.place.wanted && !s.closed {
			s.control.SetPlace(s.control.Place().Timed(true))
		}
	}
	s.mu.Unlock()
	s.stays()
}

// stays says on which processor the caller waits.
func (s *Session) stays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.wanted && !s.closed {
		s.looks()
		s.control.SetPlace(s.control.Place().Waiting(true).On(wake.CPU()))
	}
}

// looks says that a call which waits is about to look at the completions, of which it hands
// back those that it has taken (LAYOUT §8.1). Preconditions: s.mu is held, and the session
// is not closed.
func (s *Session) looks() {
	if s.place.wanted {
		s.complete.Release()
		s.control.SetLooked(shm.MomentOf(wake.Monotonic()))
	}
}

// returns says that the wait is over. Who else waits, does: that none does is told to
// people (LAYOUT §8.1).
func (s *Session) returns(timed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if timed {
		s.place.timed--
	}
	s.place.waiters--
	if s.place.wanted && !s.closed {
		p := s.control.Place() // one store: nobody shall see a wait for good between two
		s.control.SetPlace(p.Waiting(p.Waits() && s.place.waiters > 0).Timed(s.place.timed > 0))
	}
}
