package outrigger

import (
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

const (
	// placeBytes is the smallest message of which the sidecar is told where
	// this process is. A smaller one is over before that could matter, and to
	// find out takes two system calls.
	placeBytes = 64<<10 + 1
	// computesMin is the processor time between submitting and waiting that
	// is computing. A thread that was put off before it came to wait has used
	// none, however late it is.
	computesMin = 50 * time.Microsecond
)

// place is what the sidecar is told of where this process is, so that it does
// not carry out large transfers where the process computes (LAYOUT §8.1). With
// several goroutines the last word stands: it is a hint. Guarded by Session.mu.
type place struct {
	wanted bool          // the sidecar looks at it
	left   bool          // a large message was submitted, and no wait has begun
	at     time.Duration // the thread's time at that
}

// leaves says where the caller goes on while n bytes are transferred.
// Preconditions: s.mu is held, and the session is not closed.
func (s *Session) leaves(n int) {
	if !s.place.wanted || n < placeBytes {
		return
	}
	s.control.SetPlace(s.control.Place().On(wake.CPU()))
	s.place.left, s.place.at = true, wake.ThreadTime()
	s.placed.Store(true)
}

// enters says whether the caller has computed since it left. A process without
// large messages pays for a look at a flag.
func (s *Session) enters() {
	if !s.placed.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.place.left {
		return
	}
	s.place.left = false
	s.control.SetPlace(s.control.Place().Computing(wake.ThreadTime()-s.place.at >= computesMin))
}

// waits says that the caller waits and, where that may have changed, on which
// processor.
func (s *Session) waits(moved bool) {
	if !s.placed.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	p := s.control.Place().Waiting(true)
	if moved {
		p = p.On(wake.CPU())
	}
	s.control.SetPlace(p)
}

// returns says that the wait is over.
func (s *Session) returns() {
	if !s.placed.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.control.SetPlace(s.control.Place().Waiting(false))
	}
}
