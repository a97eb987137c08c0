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

// startReceive starts a receive.
func startReceive(t *testing.T, s *Session, f *fake) (Request, shm.Descriptor) {
	t.Helper()
	r, err := Irecv(s.World(), make([]byte, 32<<10), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r, f.next(shm.OpRecv)
}

// TestPlaceOfWait: the sidecar sees that the client waits for a message, and that the wait has
// ended.
func TestPlaceOfWait(t *testing.T) {
	for _, policy := range []string{"yield", "block"} {
		s, f := attachTo(t, shape{wait: policy})
		r, d := startReceive(t, s, f)
		if p := f.control.Place(); p.Waits() {
			t.Errorf("%s: place %#x before the wait", policy, p)
		}
		wait := f.answering(func() {
			for end := time.Now().Add(patience); !f.control.Place().Waits(); runtime.Gosched() {
				if time.Now().After(end) {
					t.Errorf("%s: place %#x while it waits", policy, f.control.Place())
					break
				}
			}
			f.done(d.Req, shm.StatusOK, 0)
		})
		inTime(t, "the wait", func() {
			if _, err := r.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wait()
		if p := f.control.Place(); p.Waits() {
			t.Errorf("%s: place %#x after the wait", policy, p)
		}
	}
}

// TestPlaceOfSeveral: if one of two goroutines returns, the other one still counts as waiting.
// This also holds if that one only polls.
func TestPlaceOfSeveral(t *testing.T) {
	for _, policy := range []string{"yield", "poll"} {
		s, f := attachTo(t, shape{wait: policy})
		first, d := startReceive(t, s, f)
		second, e := startReceive(t, s, f)
		var both sync.WaitGroup
		for _, r := range []Request{first, second} {
			both.Go(func() {
				if _, err := r.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		waiters := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.activity.waiters
		}
		awaitWaiters := func(n int) {
			for end := time.Now().Add(patience); waiters() != n; runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatalf("%s: %d wait, want %d", policy, waiters(), n)
				}
			}
		}
		awaitWaiters(2)
		f.done(d.Req, shm.StatusOK, 0)
		awaitWaiters(1)
		if !f.control.Place().Waits() {
			t.Errorf("%s: no goroutine is published as waiting while one waits", policy)
		}
		f.done(e.Req, shm.StatusOK, 0)
		inTime(t, "the waits", both.Wait)
		if f.control.Place().Waits() {
			t.Errorf("%s: a goroutine is published as waiting while none waits", policy)
		}
	}
}

// TestPlaceOfWaitsWithADeadline: the client publishes that it has waits with a deadline as
// long as one of them lasts. A wait without a deadline is not published as one with a
// deadline.
func TestPlaceOfWaitsWithADeadline(t *testing.T) {
	s, f := attachTo(t, shape{wait: "block"})
	r, d := startReceive(t, s, f)
	limited, cancel := context.WithTimeout(t.Context(), soon/2)
	defer cancel()
	day, over := context.WithTimeout(t.Context(), 24*time.Hour)
	defer over()
	waitIn := func(ctx context.Context, want func(shm.Place) bool) func() {
		ctx, stop := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() {
			_, err := r.Wait(ctx)
			over <- err
		}()
		for end := time.Now().Add(patience); !want(f.control.Place()); runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("place %#x", f.control.Place())
			}
		}
		return func() {
			stop()
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
	}
	waitIn(day, shm.Place.WaitsForGood)() // at that time no call waits for the message
	end := waitIn(t.Context(), shm.Place.WaitsForGood)
	endTimed := waitIn(limited, func(p shm.Place) bool { return p.Waits() && !p.WaitsForGood() })
	endTimed()
	if p := f.control.Place(); !p.WaitsForGood() {
		t.Errorf("place %#x while one waits without a deadline", p)
	}
	end()
	if p := f.control.Place(); p.Waits() || p != p.Timed(false) {
		t.Errorf("place %#x after the waits", p)
	}
	f.done(d.Req, shm.StatusOK, 0)
	if _, err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPlaceIsNegotiated: the client publishes nothing to a sidecar without the feature.
func TestPlaceIsNegotiated(t *testing.T) {
	s, f := attachTo(t, shape{features: shm.FeaturesRequired})
	if f.hello.Features&shm.FeaturePlace == 0 {
		t.Errorf("features %#x offered", f.hello.Features)
	}
	r, d := startReceive(t, s, f)
	f.done(d.Req, shm.StatusOK, 0)
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := f.control.Place(); p != 0 {
		t.Errorf("place %#x", p)
	}
}

// TestWaitSaysThatItLooks: a waiting call repeatedly publishes the time of its polls and
// releases the entries that it has read, so that the sidecar sees which entries are unread
// (LAYOUT §8.1).
func TestWaitSaysThatItLooks(t *testing.T) {
	for _, policy := range []string{"yield", "poll", "block"} {
		s, f := attachTo(t, shape{wait: policy})
		first, d := startReceive(t, s, f)
		second, e := startReceive(t, s, f)
		f.done(d.Req, shm.StatusOK, 0)
		if _, err := first.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait := f.answering(func() {
			last := shm.Moment(0)
			for said, end := 0, time.Now().Add(patience); said < 3; runtime.Gosched() {
				if m := f.control.Looked(); m != 0 && m != last && f.control.Place().Waits() {
					last = m
					said++
				}
				if time.Now().After(end) {
					t.Errorf("%s: the client has said %d times that it looks", policy, said)
					break
				}
			}
			if f.complete.Unread() > 0 {
				t.Errorf("%s: what was read counts as unread", policy)
			}
			f.done(e.Req, shm.StatusOK, 0)
		})
		inTime(t, "the wait", func() {
			if _, err := second.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wait()
	}
}
