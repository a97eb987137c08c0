package outrigger

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// closePatience bounds how long Close waits for what is still under way, and a
// call whose context has ended for the sidecar's last word.
const closePatience = 10 * time.Second

// Close says goodbye when everything that was sent has been taken over. Calls
// that other goroutines are in return ErrClosed, and memory from Alloc is gone
// afterwards: no slice of it may be touched any more.
func (s *Session) Close() error {
	if err := s.startClose(); err != nil {
		return s.fail("close", s.world, AnySource, AnyTag, 0, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	err := s.waitFor(ctx, func() bool {
		return s.failed || s.ops.buffered == 0 && s.silent == s.control.Retired()
	})
	err = errors.Join(err, s.detach())
	err = errors.Join(err, s.late, s.conn.Close())
	<-s.watched
	err = errors.Join(err, s.release())
	if err != nil {
		return s.fail("close", s.world, AnySource, AnyTag, 0, err)
	}
	return nil
}

func (s *Session) startClose() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrClosed
	}
	s.closing = true
	return nil
}

// detach says goodbye and waits until no other goroutine uses the memory.
func (s *Session) detach() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone.Load() {
		err = s.push(&shm.Descriptor{Op: shm.OpDetach})
	}
	s.reason = s.control.Failure()
	s.closed = true
	for s.users > 0 {
		s.rouse()
		s.mu.Unlock()
		wake.Yield()
		s.mu.Lock()
	}
	return err
}

func (s *Session) release() error {
	return errors.Join(segment.Unmap(s.control.Memory()), segment.Unmap(s.arenaMem), unix.Close(s.doorbell))
}
