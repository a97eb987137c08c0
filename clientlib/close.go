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

// Close says goodbye when everything that was sent, also by an Isend that nobody has
// waited for, has been taken over by its receivers, however long they take, as
// MPI_Finalize does (MPI 4.1, section 11.2.2); it returns early when the job fails. Receivers that have closed take
// over nothing more: what they have not received is dropped, and a send that had
// ended by then, as one of a copied message does at once, does not tell. A send that
// its sidecar knows to be for a rank that has closed fails at once; of one of which a
// copy was made Close tells, but for those of up to 32 bytes, and for those to a pod
// that this one had never had anything to do with before, of which nobody does. A
// window's lock that this rank still has is an error, and ends. So is a receive or a
// collective that is open and that no goroutine waits for, as MPI calls it erroneous (in
// the same section): what it waits for is lost, and other ranks of a collective may wait
// for ever. Wait for it, or Cancel it if it is a receive, which then needs no Wait. A
// goroutine that waits for several, one after the other, is only known to wait for the
// first: WaitAll and WaitAllPacked wait for all. Calls that
// other goroutines are in return ErrClosed, which is a way to end a loop of receives, and memory from Alloc is gone afterwards: no slice of it
// may be touched any more.
func (s *Session) Close() error { return s.CloseContext(context.Background()) }

// CloseContext is Close that waits no longer than ctx. What the sidecar has a
// copy of by then is delivered all the same while the sidecar runs; the error
// says how many sends are not. When ctx has ended by then, nothing is said of receives
// and collectives that are open.
func (s *Session) CloseContext(ctx context.Context) error {
	if err := s.startClose(); err != nil {
		return s.fail("close", s.world, AnySource, AnyTag, 0, err)
	}
	open := uint64(0)
	err := s.waitFor(ctx, func() bool {
		open = uint64(s.ops.sending) + s.silent - s.control.Retired()
		s.ending = s.failed || open == 0 // nothing may begin after this
		return s.ending
	})
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	if err != nil && ctx.Err() != nil {
		sends := "1 send has"
		if open != 1 {
			sends = fmt.Sprintf("%d sends have", open)
		}
		err = fmt.Errorf("%w: %s not been received", err, sends)
	}
	left := s.leftOpen(ctx)
	err = errors.Join(err, s.detach())
	err = errors.Join(err, partOf(s.late), left, s.conn.Close())
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

// A goroutine has, at Close, this time and so many looks from the beginning of its call
// to its wait. They begin again whenever one of them gets there: many goroutines on few
// processors take their turns, and a process that is throttled or stopped meanwhile
// looks seldom.
const (
	entryPatience = 100 * time.Millisecond
	entryLooks    = 256
)

// leftOpen says what the program should have ended before. In a job that has failed
// nothing of it is its mistake.
func (s *Session) leftOpen(ctx context.Context) error {
	held := s.stillLocked(0)
	var open error
	if ctx.Err() == nil { // else it gives up what it has open, and knows
		open = s.neverAttended()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed || s.gone.Load() || s.control.Failure() != "" {
		return nil
	}
	return errors.Join(held, open)
}

// neverAttended names a receive or a collective that is open and that nobody waits for.
func (s *Session) neverAttended() error {
	least, first := s.unattended()
	for since, looks := time.Now(), 1; least > 0 && (looks < entryLooks || time.Since(since) < entryPatience); looks++ {
		wake.Yield()
		var n int
		if n, first = s.unattended(); n < least {
			least, since, looks = n, time.Now(), 0
		}
	}
	return first
}

// unattended is what nobody waits for now, and how many such operations there are.
func (s *Session) unattended() (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *op
	for _, o := range s.ops.list {
		if o.open && !o.done && (o.receives || o.collective) && !o.awaited && !o.detached && (o.collective || !o.cancelled) {
			if n++; first == nil {
				first = o
			}
		}
	}
	if first == nil {
		return 0, nil
	}
	advice := "Wait for it or Cancel it before Close"
	if first.collective {
		advice = "Wait for it before Close: collectives cannot be cancelled"
	}
	err = partOf(s.fail(first.what, first.comm, first.peer, first.tag, first.bytes, fmt.Errorf("%w: it is open, and nobody waits for it; %s", ErrInvalid, advice)))
	if n > 1 {
		err = fmt.Errorf("%w; so are %d more (WaitAll and WaitAllPacked wait for many in one call)", err, n-1)
	}
	return n, err
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
	s.told.end()
	return errors.Join(s.closeDevice(), segment.Unmap(s.control.Memory()), segment.Unmap(s.arenaMem), unix.Close(s.doorbell))
}
