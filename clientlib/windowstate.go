package outrigger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// The state of a window on a rank: sizes, locks and memory. With it a mistake is reported by the call
// that makes it, and not by the next flush, which knows neither the access nor the part.

// parts has the number of bytes that each rank exposes in a window.
type parts struct {
	same int64   // size in bytes of each rank's part, if each is nil
	each []int64 // size in bytes of each rank's part, by rank; nil: all have the size same
}

func (p *parts) of(rank int) int64 {
	if p.each != nil {
		return p.each[rank]
	}
	return p.same
}

// parts gathers the number of bytes that the ranks expose. It is collective, and no rank returns
// before all have called it. If all ranks expose the same number, it needs no memory for each rank.
func (c *Comm) parts(ctx context.Context, bytes int) (*parts, error) {
	most := []int64{int64(bytes), -int64(bytes)}
	if err := Allreduce(ctx, c, most, most, Max); err != nil {
		return nil, err
	}
	if most[0] == -most[1] {
		return &parts{same: most[0]}, nil
	}
	p := &parts{each: make([]int64, c.Size())}
	return p, Allgather(ctx, c, []int64{int64(bytes)}, p.each)
}

// usable returns an error if the window has been freed.
func (w *Window[T]) usable() error {
	if w.freed.Load() {
		return fmt.Errorf("%w: window %d has been freed", ErrInvalid, w.number)
	}
	return nil
}

// bounds checks that the target's part has n elements from disp on.
func (w *Window[T]) bounds(target, disp, n int) error {
	if w.parts == nil {
		return nil
	}
	have := int(w.parts.of(target) / int64(sizeOf[T]()))
	if n <= have && disp <= have-n {
		return nil
	}
	return fmt.Errorf("%w: %d elements from %d on, of window %d, which has %d elements at rank %d", ErrInvalid, n, disp, w.number, have, target)
}

// lockKey identifies a rank's part of a window in Session.locks.
type lockKey struct {
	window uint32
	target uint32 // world rank of the window's part
}

// lockState is whether a lock was requested or granted.
type lockState bool

const (
	lockAsked lockState = false
	lockHeld  lockState = true
)

// locking records that a lock is requested.
func (s *Session) locking(l lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := lockKey{l.window, l.comm.world(l.target)}
	if _, twice := s.locks[place]; twice {
		return fmt.Errorf("%w: this rank has, or waits for, the lock of window %d at rank %d; Unlock it first", ErrInvalid, l.window, l.target)
	}
	if s.locks == nil {
		s.locks = map[lockKey]lockState{}
	}
	s.locks[place] = lockAsked
	return nil
}

// locked records the result of the request.
func (s *Session) locked(l lock, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := lockKey{l.window, l.comm.world(l.target)}
	if err != nil {
		delete(s.locks, place)
		return
	}
	s.locks[place] = lockHeld
}

// unlocking records that a lock is released.
func (s *Session) unlocking(l lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := lockKey{l.window, l.comm.world(l.target)}
	if s.locks[place] != lockHeld {
		return fmt.Errorf("%w: this rank does not have the lock of window %d at rank %d; Lock it first", ErrInvalid, l.window, l.target)
	}
	delete(s.locks, place)
	return nil
}

// stillLocked returns an error that names a lock that this rank has, of one window or, with 0, of any.
func (s *Session) stillLocked(window uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []lockKey
	for place, state := range s.locks {
		if state == lockHeld && (window == 0 || place.window == window) {
			held = append(held, place)
		}
	}
	if len(held) == 0 {
		return nil
	}
	first := slices.MinFunc(held, func(a, b lockKey) int {
		return cmp.Or(cmp.Compare(a.window, b.window), cmp.Compare(a.target, b.target))
	})
	return fmt.Errorf("%w: this rank still has the lock of window %d at world rank %d; Unlock it first", ErrInvalid, first.window, first.target)
}

// expose records the memory of a window of this rank, so that it is not freed while other ranks access
// it.
func (s *Session) expose(window uint32, local []byte) {
	off, ok := s.inArena(local)
	if !ok || len(local) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exposed == nil {
		s.exposed = map[uint32]span{}
	}
	s.exposed[window] = span{off, len(local)}
}

// withdraw records that a window was freed.
func (s *Session) withdraw(window uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.exposed, window)
}

// notExposed returns an error if a window has the memory.
func (s *Session) notExposed(off, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for window, x := range s.exposed {
		if x.off < off+n && off < x.off+x.size {
			return fmt.Errorf("%w: window %d has this memory; Free the window first", ErrInvalid, window)
		}
	}
	return nil
}
