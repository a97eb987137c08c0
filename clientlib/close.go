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

// cancelTimeout bounds how long a call whose context has ended waits for the completion of its
// cancelled operation, and a close for room in the ring.
const cancelTimeout = 10 * time.Second

// Close detaches from the sidecar after the receivers have taken over all messages that were sent,
// including those of an Isend that was not waited for, however long that takes, as MPI_Finalize
// does (MPI 4.1, section 11.2.2). It returns early if the job fails. Calls of other goroutines
// return ErrClosed, which is a way to end a loop of receives. After Close no slice of memory from
// Alloc may be used.
//
// A receiver that has closed its session takes over no more messages: messages that it has not
// received are dropped. A send that had completed before, as the send of a copied message does at
// once, does not report that. A send to a rank that this rank's sidecar knows to have closed fails
// at once. If such a message was copied, Close reports the failure, except for messages of up to 32
// bytes and for messages to a pod to which this pod had no connection before: their loss is not
// reported.
//
// It is an error if this rank still has the lock of a window; the lock is released. It is also an
// error if a receive or a collective is open and no goroutine waits for it (erroneous by MPI, in
// the same section): its messages are lost, and other ranks of a collective may wait for ever.
// Wait for it, or Cancel it if it is a receive, which then needs no Wait. A goroutine that calls
// Wait for several requests in turn counts as waiting for the first one only: WaitAll and
// WaitAllPacked wait for all.
func (s *Session) Close() error { return s.CloseContext(context.Background()) }

// CloseContext is Close that waits no longer than ctx. Messages of which the sidecar has a copy by
// then are still delivered while the sidecar runs; the error has the number of sends that are not
// received. If ctx has ended, open receives and collectives are not reported. If the sidecar does not
// take what this rank has submitted, CloseContext waits for 10 s more, and the job fails.
func (s *Session) CloseContext(ctx context.Context) error {
	if err := s.startClose(); err != nil {
		return s.fail("close", s.world, AnySource, AnyTag, 0, err)
	}
	open := uint64(0)
	err := s.waitFor(ctx, func() bool {
		open = uint64(s.ops.sending) + s.silent - s.control.Retired()
		s.ending = s.failed || open == 0 // once ending is set, no operation may begin
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
	left := s.openAtClose(ctx)
	err = errors.Join(err, s.detach(ctx, cancelTimeout))
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

// When Close is called, a goroutine may be between the start of an operation and its wait for it.
// Close gives it entryTimeout and at least entryPolls checks to get there, and begins again whenever
// one goroutine does: many goroutines on few CPUs run in turn, and a process that is throttled or
// stopped meanwhile makes few checks.
const (
	entryTimeout = 100 * time.Millisecond
	entryPolls   = 256
)

// openAtClose returns an error for locks, receives and collectives that the program should have ended
// before Close. In a job that has failed they are no mistake of the program.
func (s *Session) openAtClose(ctx context.Context) error {
	held := s.stillLocked(0)
	var open error
	if ctx.Err() == nil { // otherwise the program has given up its open operations
		open = s.neverAwaited()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed || s.gone.Load() || s.control.Failure() != "" {
		return nil
	}
	return errors.Join(held, open)
}

// neverAwaited returns an error if a receive or a collective is open and no goroutine waits for it.
func (s *Session) neverAwaited() error {
	least, first := s.notAwaited()
	for since, polls := time.Now(), 1; least > 0 && (polls < entryPolls || time.Since(since) < entryTimeout); polls++ {
		wake.Yield()
		var n int
		if n, first = s.notAwaited(); n < least {
			least, since, polls = n, time.Now(), 0
		}
	}
	return first
}

// notAwaited returns the number of open receives and collectives that no goroutine waits for now,
// and an error that names the first one.
func (s *Session) notAwaited() (n int, err error) {
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
	err = partOf(s.fail(first.what, first.comm, first.peer, first.tag, first.bytes, fmt.Errorf("%w: it is open, and no goroutine waits for it; %s", ErrInvalid, advice)))
	if n > 1 {
		err = fmt.Errorf("%w; so are %d more (WaitAll and WaitAllPacked wait for many in one call)", err, n-1)
	}
	return n, err
}

// detach submits OpDetach and waits until no other goroutine uses the shared memory. In a full ring it
// waits for room until grace after ctx has ended: a sidecar that is not told takes the job for failed,
// and one that is stopped may never have room.
func (s *Session) detach(ctx context.Context, grace time.Duration) (err error) {
	limit, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, stop) })()
	if err = s.enterCall(limit); err != nil {
		if limit.Err() != nil {
			err = fmt.Errorf("%w: the sidecar has not taken what this rank has submitted", ctx.Err())
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if err == nil && !s.gone.Load() {
		err = s.push(&shm.Descriptor{Op: shm.OpDetach})
	}
	s.reason = s.control.Failure()
	s.closed = true
	for s.users > 0 {
		s.wakeSleepers()
		s.mu.Unlock()
		wake.Yield()
		s.mu.Lock()
	}
	return err
}

func (s *Session) release() error {
	s.lastError.stop()
	return errors.Join(s.closeDevice(), segment.Unmap(s.control.Memory()), segment.Unmap(s.arenaMem), unix.Close(s.doorbell))
}
