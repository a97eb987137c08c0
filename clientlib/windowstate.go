package outrigger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// What a rank knows of a window, so that a mistake is told where it is made and not at
// the next flush, which knows neither the access nor the part.

// parts are how many bytes each rank exposes in a window.
type parts struct {
	same int64   // all ranks the same
	each []int64 // else by rank
}

func (p *parts) of(rank int) int64 {
	if p.each != nil {
		return p.each[rank]
	}
	return p.same
}

// parts finds out how many bytes the ranks expose. No rank is back before all have
// called it. Where they are as many everywhere, that is no memory a rank.
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

// usable says why the window cannot be used, if so.
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

// lockPlace is a rank's part of a window.
type lockPlace struct {
	window uint32
	target uint32 // world rank
}

// A lock is asked for, then held.
type lockState bool

const (
	lockAsked lockState = false
	lockHeld  lockState = true
)

// locking notes that a lock is asked for.
func (s *Session) locking(l lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := lockPlace{l.window, l.comm.world(l.target)}
	if _, twice := s.locks[place]; twice {
		return fmt.Errorf("%w: this rank has, or waits for, the lock of window %d at rank %d; Unlock it first", ErrInvalid, l.window, l.target)
	}
	if s.locks == nil {
		s.locks = map[lockPlace]lockState{}
	}
	s.locks[place] = lockAsked
	return nil
}

// locked notes what has come of it.
func (s *Session) locked(l lock, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := lockPlace{l.window, l.comm.world(l.target)}
	if err != nil {
		delete(s.locks, place)
		return
	}
	s.locks[place] = lockHeld
}

// unlocking notes that a lock is given back.
func (s *Session) unlocking(l lock) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	place := lockPlace{l.window, l.comm.world(l.target)}
	if s.locks[place] != lockHeld {
		return fmt.Errorf("%w: this rank does not have the lock of window %d at rank %d; Lock it first", ErrInvalid, l.window, l.target)
	}
	delete(s.locks, place)
	return nil
}

// stillLocked names a lock that is held, of one window or, with 0, of any.
func (s *Session) stillLocked(window uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []lockPlace
	for place, state := range s.locks {
		if state == lockHeld && (window == 0 || place.window == window) {
			held = append(held, place)
		}
	}
	if len(held) == 0 {
		return nil
	}
	first := slices.MinFunc(held, func(a, b lockPlace) int {
		return cmp.Or(cmp.Compare(a.window, b.window), cmp.Compare(a.target, b.target))
	})
	return fmt.Errorf("%w: this rank still has the lock of window %d at world rank %d; Unlock it first", ErrInvalid, first.window, first.target)
}

// expose notes what memory a window of this rank has, so that it is not freed under
// those who access it.
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

// withdraw notes that a window is freed.
func (s *Session) withdraw(window uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.exposed, window)
}

// notExposed refuses memory that a window has.
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
