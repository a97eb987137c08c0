package outrigger

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// fullRing returns a session whose ring of submissions is full, and one of the receives in it.
func fullRing(t *testing.T) (*Session, *fake, []Request) {
	t.Helper()
	s, f := attachTo(t, shape{submit: 16})
	var all []Request
	for range 16 {
		r, err := Irecv(s.World(), make([]byte, 8), 1, 5)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return s, f, all
}

// TestFullRingStopsNoOther: while a call waits for room in the ring, other goroutines get their
// completions.
func TestFullRingStopsNoOther(t *testing.T) {
	for name, call := range map[string]func(s *Session) error{
		"abort": func(s *Session) error { return s.Abort(1, "why") },
		"send":  func(s *Session) error { return Send(t.Context(), s.World(), []byte{1}, 1, 1) },
		"close": func(s *Session) error { return s.detach(t.Context(), time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			s, f, all := fullRing(t)
			result := make(chan error)
			go func() { result <- call(s) }()
			inTime(t, "a Test of another goroutine", func() {
				for range 10000 { // the call waits by now
					if _, over, err := all[0].Test(); over || err != nil {
						t.Errorf("the receive is over: %v", err)
					}
					runtime.Gosched()
				}
			})
			f.done(0, shm.StatusOK, 8)
			inTime(t, "the receive of another goroutine", func() {
				if _, err := all[0].Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
			for range 16 {
				f.next(shm.OpRecv)
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCancelWithFullRing: a cancellation does not wait for room in the ring, and the engine gets it
// later, unless the operation has ended.
func TestCancelWithFullRing(t *testing.T) {
	s, f, all := fullRing(t)
	inTime(t, "Cancel", func() {
		for _, r := range all[:2] {
			if err := r.Cancel(); err != nil {
				t.Error(err)
			}
		}
	})
	f.done(0, shm.StatusOK, 8)
	if _, err := all[0].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	if !s.backlog.Load() {
		t.Error("a wait would sleep, although nothing wakes it when the ring has room")
	}
	for range 16 {
		f.next(shm.OpRecv)
	}
	settle(t, s)
	if d := f.next(shm.OpCancel); d.Req != 1 {
		t.Errorf("request %d is cancelled, want 1", d.Req)
	}
	f.quiet()
	f.done(1, shm.StatusCancelled, 0)
	if _, err := all[1].Wait(t.Context()); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v, want ErrCancelled", err)
	}
}

// TestWorkWithLittleRoom: a poll submits as much of the work that completions ask for as the ring has
// room for, and no call needs the rest.
func TestWorkWithLittleRoom(t *testing.T) {
	s, f, _ := fullRing(t)
	s.mu.Lock()
	s.todo.reduce.push(shm.Descriptor{Op: shm.OpReduce, Req: 0})
	s.todo.drops.push(7)
	s.mu.Unlock()
	for want := range 2 {
		f.next(shm.OpRecv) // room for one
		inTime(t, "a poll", func() { settle(t, s) })
		if left := s.todo.reduce.len() + s.todo.drops.len(); left != 1-want {
			t.Fatalf("%d descriptors are left, want %d", left, 1-want)
		}
	}
}

// TestCloseWithFullRing: a close whose context has ended waits for room in the ring for a bounded time.
func TestCloseWithFullRing(t *testing.T) {
	s, _, _ := fullRing(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	inTime(t, "the close", func() {
		if err := s.detach(ctx, time.Millisecond); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
	if err := Send(t.Context(), s.World(), []byte{1}, 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("a send after it: got %v, want ErrClosed", err)
	}
}
