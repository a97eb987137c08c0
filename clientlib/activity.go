package outrigger

import (
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// activity counts the waits of this process, for the sidecar's detection of deadlocks and its
// explanation of a hang (LAYOUT §8.1). Session.mu guards it.
type activity struct {
	wanted  bool // the sidecar reads the activity (shm.FeaturePlace)
	waiters int  // number of goroutines in calls that have waited for spinFor
	timed   int  // number of those waiters that return soon even if nothing arrives
}

// beginWait publishes that the caller waits; endWait revokes it. timed: the caller's deadline is near,
// and it returns then even if nothing arrives.
func (s *Session) beginWait(timed bool) {
	s.mu.Lock()
	s.activity.waiters++
	if timed {
		if s.activity.timed++; s.activity.timed == 1 && s.activity.wanted && !s.closed {
			s.control.SetPlace(s.control.Place().Timed(true))
		}
	}
	s.mu.Unlock()
	s.refreshWait()
}

// refreshWait publishes that the caller still waits and is about to poll.
func (s *Session) refreshWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.activity.wanted && !s.closed {
		s.publishPoll()
		s.control.SetPlace(s.control.Place().Waiting(true))
	}
}

// publishPoll publishes the time at which a call that waits polls. Before that it publishes the head of
// the completion ring: a rank that has not read a completion does not count as one that waits
// (LAYOUT §8.1). Preconditions: s.mu is held, and the session is not closed.
func (s *Session) publishPoll() {
	if s.activity.wanted {
		s.complete.Release()
		s.control.SetLooked(shm.MomentOf(wake.Monotonic()))
	}
}

// endWait ends a wait. The process still waits if other goroutines do (LAYOUT §8.1).
func (s *Session) endWait(timed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if timed {
		s.activity.timed--
	}
	s.activity.waiters--
	if s.activity.wanted && !s.closed {
		p := s.control.Place() // both bits change in one store: between two stores, the sidecar could read a wait without a time limit
		s.control.SetPlace(p.Waiting(p.Waits() && s.activity.waiters > 0).Timed(s.activity.timed > 0))
	}
}
