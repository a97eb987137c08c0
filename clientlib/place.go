package outrigger

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// place is what the sidecar is told of the waits of this process (LAYOUT §8.1), for the watch for
// deadlocks and for the explanation of a hang. Guarded by Session.mu.
type place struct {
	wanted  bool // the sidecar looks at it
	waiters int  // goroutines in calls that have waited for a while
	timed   int  // those of them that go on at a time, whatever comes
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

// stays says that the caller waits, and looks.
func (s *Session) stays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place.wanted && !s.closed {
		s.looks()
		s.control.SetPlace(s.control.Place().Waiting(true))
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
