package outrigger

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestCallsAfterClose: every call after Close returns an error that says so, and none accesses
// unmapped memory.
func TestCallsAfterClose(t *testing.T) {
	s, f := attachTo(t, shape{})
	c := s.World()
	mem, err := Alloc[byte](s, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	open, err := Irecv(c, make([]byte, 10), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpRecv)
	if err := open.Cancel(); err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpCancel)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpDetach)
	w := &Window[byte]{comm: c, number: 9}
	op := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"send":      Send(t.Context(), c, []byte{1}, 1, 1),
		"send big":  Send(t.Context(), c, make([]byte, 1<<20), 1, 1),
		"recv":      op(Recv(t.Context(), c, make([]byte, 10), 1, 1)),
		"wait":      op(open.Wait(t.Context())),
		"cancel":    open.Cancel(),
		"probe":     op(c.Probe(t.Context(), 1, 1)),
		"alloc":     op(Alloc[byte](s, 10)),
		"free":      Free(s, mem[:1<<10:1<<10]),
		"barrier":   c.Barrier(t.Context()),
		"allreduce": Allreduce(t.Context(), c, []int{1}, []int{1}, Sum),
		"split":     op(c.Split(t.Context(), 0, 0)),
		"put":       w.Put(t.Context(), make([]byte, 100), 1, 0),
		"fetch":     op(w.FetchOp(t.Context(), 1, 1, 0, Sum)),
		"abort":     s.Abort(1, "too late"),
		"close":     s.Close(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", name, err)
		}
	}
	if _, _, err := open.Test(); !errors.Is(err, ErrClosed) {
		t.Errorf("test: got %v, want ErrClosed", err)
	}
}

// TestCloseEndsCallsOfOthers: Close ends the calls of other goroutines.
func TestCloseEndsCallsOfOthers(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			s, f := attachTo(t, shape{wait: policy})
			var calls sync.WaitGroup
			for tag := range 4 {
				calls.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					r, err := Irecv(s.World(), make([]byte, 10), 1, tag)
					for err == nil {
						_, err = r.Wait(ctx)
					}
					if !errors.Is(err, ErrClosed) {
						t.Errorf("got %v, want ErrClosed", err)
					}
				})
			}
			calls.Go(func() {
				for {
					b, err := Alloc[byte](s, 1<<16)
					if err == nil {
						err = Free(s, b)
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("got %v, want ErrClosed", err)
						}
						return
					}
				}
			})
			for range 4 {
				f.next(shm.OpRecv)
			}
			time.Sleep(5 * time.Millisecond) // time for the calls to sleep, if the policy sleeps
			inTime(t, "close", func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				calls.Wait()
			})
		})
	}
}

// TestCloseReportsLateFailure: Close waits for sends whose callers have returned, and reports
// their results.
func TestCloseReportsLateFailure(t *testing.T) {
	s, f := attachTo(t, shape{})
	if err := Send(t.Context(), s.World(), make([]byte, 4<<10), 3, 8); err != nil {
		t.Fatal(err)
	}
	d := f.next(shm.OpSend)
	wait := f.answering(func() { f.done(d.Req, shm.StatusPeerFailed, 0) })
	err := s.Close()
	wait()
	if !errors.Is(err, ErrPeerFailed) || !contains(err, "rank 3 tag 8") {
		t.Fatalf("got %v", err)
	}
}

func TestCloseWaitsForSilentSends(t *testing.T) {
	s, f := attachTo(t, shape{})
	for range 3 {
		if err := Send(t.Context(), s.World(), []byte{1}, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	wait := f.answering(func() {
		for i := range 3 {
			f.next(shm.OpSend)
			f.quietly(uint64(i + 1))
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wait()
	f.next(shm.OpDetach)
}

// TestCloseWaitsForOpenSends: Close waits for a send that was started and never waited for,
// and reports its failure.
func TestCloseWaitsForOpenSends(t *testing.T) {
	for _, status := range []shm.Status{shm.StatusOK, shm.StatusPeerLeft} {
		s, f := attachTo(t, shape{})
		mem, err := Alloc[byte](s, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Isend(s.World(), mem, 1, 7); err != nil {
			t.Fatal(err)
		}
		d := f.next(shm.OpSend)
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		f.done(d.Req, status, 0)
		f.next(shm.OpDetach)
		if err := <-closed; (err == nil) != (status == shm.StatusOK) || status == shm.StatusPeerLeft && !contains(err, "outrigger: rank 0: close: isend with rank 1 tag 7 (65536 bytes)") {
			t.Errorf("status %d: Close says %v", status, err)
		}
	}
}

// TestCloseTellsWhatIsOpen: Close reports an open receive or collective for which no goroutine
// waits. It does not report one with a waiting goroutine, a cancelled one, or one of a failed
// job.
func TestCloseTellsWhatIsOpen(t *testing.T) {
	for name, c := range map[string]struct {
		play func(t *testing.T, s *Session, f *fake)
		want string // part of the error of Close; "": Close returns nil
	}{
		"a receive": {func(t *testing.T, s *Session, _ *fake) {
			if _, err := Irecv(s.World(), make([]byte, 80), 1, 7); err != nil {
				t.Fatal(err)
			}
		}, "outrigger: rank 0: close: irecv with rank 1 tag 7 (80 bytes): invalid argument: it is open, and no goroutine waits for it; Wait for it or Cancel it before Close"},
		"many": {func(t *testing.T, s *Session, _ *fake) {
			for range 3 {
				if _, err := Irecv(s.World(), make([]byte, 80), AnySource, 7); err != nil {
					t.Fatal(err)
				}
			}
		}, "before Close; so are 2 more"},
		"a collective": {func(t *testing.T, s *Session, _ *fake) {
			if _, err := Iallreduce(s.World(), make([]int64, 2), make([]int64, 2), Sum); err != nil {
				t.Fatal(err)
			}
		}, "close: allreduce (16 bytes): invalid argument: it is open, and no goroutine waits for it; Wait for it before Close: collectives cannot be cancelled"},
		"a collective that was to be cancelled": {func(t *testing.T, s *Session, _ *fake) {
			r, err := s.World().Ibarrier()
			if err == nil {
				err = r.Cancel()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "close: barrier: invalid argument: it is open, and no goroutine waits for it"},
		"a failed job": {func(t *testing.T, s *Session, f *fake) {
			if _, err := Irecv(s.World(), make([]byte, 80), 1, 7); err != nil {
				t.Fatal(err)
			}
			s.locks = map[lockKey]lockState{{window: 1}: lockHeld}
			f.control.SetFailure("rank 2 was killed")
		}, ""},
		"a goroutine's": {func(t *testing.T, s *Session, f *fake) {
			go func() { _, _ = Recv(context.WithoutCancel(t.Context()), s.World(), make([]byte, 80), 1, 7) }() // Close ends it
			f.next(shm.OpRecv)
		}, ""},
		"a goroutine's in WaitAll": {func(t *testing.T, s *Session, f *fake) {
			requests := make([]Request, 3)
			for i := range requests {
				r, err := Irecv(s.World(), make([]byte, 80), 1, i)
				if err != nil {
					t.Fatal(err)
				}
				requests[i] = r
			}
			go func() { _ = WaitAll(context.WithoutCancel(t.Context()), requests) }()
		}, ""},
		"a goroutine's in WaitAllPacked": {func(t *testing.T, s *Session, f *fake) {
			requests := make([]*PackedRequest, 4) // the last one is nil
			for i := range 3 {
				r, err := IrecvStrided(s.World(), make([]int64, 8), Layout{Count: 4, Block: 1, Stride: 2}, 1, i)
				if err != nil {
					t.Fatal(err)
				}
				requests[i] = r
			}
			go func() { _ = WaitAllPacked(context.WithoutCancel(t.Context()), requests) }()
		}, ""},
		"a goroutine's in a loop of Test": {func(t *testing.T, s *Session, f *fake) {
			r, err := Irecv(s.World(), make([]byte, 80), 1, 7)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for over := false; !over && err == nil; runtime.Gosched() {
					_, over, err = r.Test()
				}
			}()
		}, ""},
		"many goroutines' that have just begun": {func(t *testing.T, s *Session, f *fake) {
			for tag := range 100 { // half of them stay in the ring
				go func() { _, _ = Recv(context.WithoutCancel(t.Context()), s.World(), make([]byte, 80), 1, tag) }()
			}
			for range 50 { // the other receives may find the session closed
				f.next(shm.OpRecv)
			}
		}, ""},
		"ended": {func(t *testing.T, s *Session, f *fake) {
			if _, err := Irecv(s.World(), make([]byte, 80), 1, 7); err != nil {
				t.Fatal(err)
			}
			f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 8)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := attachTo(t, shape{})
			c.play(t, s, f)
			if err := s.Close(); c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrInvalid) || !contains(err, c.want)) {
				t.Errorf("Close says %v, want %q", err, c.want)
			}
		})
	}
}

// TestNothingBeginsWhenCloseEnds: after Close has waited for its sends, no operation begins,
// because it would be lost without an error.
func TestNothingBeginsWhenCloseEnds(t *testing.T) {
	s, f := attachTo(t, shape{})
	if _, err := Irecv(s.World(), make([]byte, 80), 1, 7); err != nil { // Close checks for a while whether a goroutine waits for it
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	ending := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ending
	}
	for !ending() {
		runtime.Gosched()
	}
	if err := Send(t.Context(), s.World(), []byte{1}, 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("a send that its Close would not wait for: %v", err)
	}
	if err := <-closed; !errors.Is(err, ErrInvalid) {
		t.Errorf("Close says %v", err)
	}
	f.next(shm.OpRecv)
	f.next(shm.OpDetach)
}

func TestFailureTextOutlivesMemory(t *testing.T) {
	s, f := attachTo(t, shape{})
	f.control.SetFailure("rank 2 was killed")
	f.hangUp()
	<-s.watched
	_ = s.Close() // the sidecar is gone, which Close should report
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.withFailure(ErrAborted); !contains(err, "rank 2 was killed") {
		t.Fatalf("got %v", err)
	}
}

// TestCloseContext: if its context ends, Close reports the sends that it abandons, and closes
// the session in order.
func TestCloseContext(t *testing.T) {
	for taken, want := range map[int]string{1: "2 sends have not been received", 2: "1 send has not been received"} {
		t.Run(want, func(t *testing.T) { closeEarly(t, taken, want) })
	}
}

// closeEarly closes a session when taken of its three sends have been taken over.
func closeEarly(t *testing.T, taken int, want string) {
	s, f := attachTo(t, shape{})
	for range 3 {
		if err := Send(t.Context(), s.World(), []byte{1}, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := f.answering(func() {
		for range 3 {
			f.next(shm.OpSend)
		}
		f.quietly(uint64(taken))
		cancel()
		f.next(shm.OpDetach)
	})
	err := s.CloseContext(ctx)
	wait()
	if !errors.Is(err, context.Canceled) || !contains(err, want) {
		t.Fatalf("got %v", err)
	}
}
