package outrigger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/segment"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// cancelPatience bounds how long a call whose context has ended waits for the
// sidecar's last word.
const cancelPatience = 10 * time.Second

// Close says goodbye when everything that was sent has been taken over by its
// receivers, however long they take, as MPI_Finalize does (MPI 4.1, section
// 11.2.2); it returns early when the job fails. Receivers that have closed take
// over nothing more: what they have not received is dropped, and a send that had
// ended by then, as one of a copied message does at once, does not tell. Calls that
// other goroutines are in return ErrClosed, and memory from Alloc is gone afterwards: no slice of it
// may be touched any more.
func (s *Session) Close() error { return s.CloseContext(context.Background()) }

// CloseContext is Close that waits no longer than ctx. What the sidecar has a
// copy of by then is delivered all the same while the sidecar runs; the error
// says how many sends are not.
func (s *Session) CloseContext(ctx context.Context) error {
	if err := s.startClose(); err != nil {
		return s.fail("close", s.world, AnySource, AnyTag, 0, err)
	}
	open := uint64(0)
	err := s.waitFor(ctx, func() bool {
		open = uint64(s.ops.buffered) + s.silent - s.control.Retired()
		return s.failed || open == 0
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %d sends have not been received", err, open)
	}
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
