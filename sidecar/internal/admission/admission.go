// Package admission limits the connections that have not authenticated yet. A new
// connection never waits for a slot. If all slots are taken, the limiter closes the
// oldest connection that has sent nothing; if all have sent something, the oldest one;
// and if all of them are new, the new connection, whose client tries again. So
// unauthenticated clients that keep connections open, however many, only displace each
// other, and a client that authenticates at once has the time that this takes.
//
// The listeners of peers, session and pmi each have a Limiter, and package node uses
// Credentials. A slot is idle, then active (MarkActive), and ends with Release or when
// the limiter closes its connection.
package admission

import (
	"container/list"
	"sync"
	"time"
)

// How long a connection keeps its slot when others want it. A handshake takes some
// milliseconds; if many connections arrive at once, closing those in the middle of a
// handshake would make all of them begin again.
const (
	idleTime   = 20 * time.Millisecond // for a connection that has sent no byte since its admission (SilentFor)
	activeTime = 250 * time.Millisecond
)

// Limiter limits the connections of one listener.
type Limiter struct {
	slots, share int
	silent       time.Duration

	mu     sync.Mutex // guards the fields below
	idle   list.List  // *Slot, those that have sent nothing, oldest first
	active list.List  // *Slot, the others, oldest first
	by     map[string]int

	now func() time.Time
}

// Slot is the slot of one connection.
type Slot struct {
	limiter *Limiter
	from    string
	since   time.Time
	close   func()
	in      *list.List // nil: released
	at      *list.Element
}

// New returns a limiter with slots slots, of which connections of one address get at most
// share.
func New(slots, share int) *Limiter {
	return &Limiter{slots: max(slots, 1), share: max(share, 1), silent: idleTime, by: map[string]int{}, now: time.Now}
}

// SilentFor sets how long a connection without a byte keeps its slot, for clients that do
// not try again after their connection was closed. The more slots there are, the sooner a
// new connection gets one nevertheless. It must be called before Admit.
func (l *Limiter) SilentFor(d time.Duration) *Limiter {
	l.silent = d
	return l
}

// Admit gives a connection a slot, or returns nil if there is none. from is its address.
// When the limiter calls closeConn, which must not block, the connection has lost its
// slot and must be closed.
func (l *Limiter) Admit(from string, closeConn func()) *Slot {
	l.mu.Lock()
	now := l.now()
	s, evicted := &Slot{limiter: l, from: from, since: now, close: closeConn}, (*Slot)(nil)
	full := l.by[from] >= l.share
	if full || l.idle.Len()+l.active.Len() >= l.slots {
		evicted = l.oldest(now, func(o *Slot) bool { return !full || o.from == from })
		if evicted == nil {
			l.mu.Unlock()
			return nil
		}
		evicted.remove()
	}
	l.by[from]++
	s.in = &l.idle
	s.at = l.idle.PushBack(s)
	l.mu.Unlock()
	if evicted != nil {
		evicted.close()
	}
	return s
}

// oldest returns the slot to release for a new connection, or nil.
func (l *Limiter) oldest(now time.Time, may func(*Slot) bool) *Slot {
	for _, row := range []struct {
		slots *list.List
		time  time.Duration
	}{{&l.idle, l.silent}, {&l.active, activeTime}} {
		for e := row.slots.Front(); e != nil; e = e.Next() {
			if s := e.Value.(*Slot); may(s) && now.Sub(s.since) >= row.time {
				return s
			}
		}
	}
	return nil
}

// MarkActive records that the connection has begun to authenticate.
func (s *Slot) MarkActive() {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.in == &s.limiter.idle {
		s.in.Remove(s.at)
		s.in = &s.limiter.active
		s.at = s.in.PushBack(s)
	}
}

// Release releases the slot, because the client has authenticated or its connection has
// ended. It reports whether the connection still had the slot; if not, the limiter is
// closing it.
func (s *Slot) Release() bool {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	if s.in == nil {
		return false
	}
	s.remove()
	return true
}

func (s *Slot) remove() {
	s.in.Remove(s.at)
	s.in = nil
	if s.limiter.by[s.from]--; s.limiter.by[s.from] == 0 {
		delete(s.limiter.by, s.from)
	}
}

// Len returns the number of slots in use.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle.Len() + l.active.Len()
}
