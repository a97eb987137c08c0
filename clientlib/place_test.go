package outrigger

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// A message that is not large, and a wait that is short, say nothing.
func TestSmallMessagesSayNoPlace(t *testing.T) {
	s, f := attachTo(t, shape{})
	r, err := Irecv(s.World(), make([]byte, placeBytes-1), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 0)
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := f.control.Place(); p != 0 {
		t.Errorf("place %#x", p)
	}
}

// largeReceive starts a receive of which the sidecar is told the place.
func largeReceive(t *testing.T, s *Session, f *fake) (Request, shm.Descriptor) {
	t.Helper()
	r, err := Irecv(s.World(), make([]byte, placeBytes), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r, f.next(shm.OpRecv)
}

// While a large message is awaited the sidecar sees that, and on which
// processor; afterwards it does not.
func TestPlaceOfWait(t *testing.T) {
	for _, policy := range []string{"yield", "block"} {
		s, f := attachTo(t, shape{wait: policy})
		r, d := largeReceive(t, s, f)
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
			if _, known := f.control.Place().CPU(); !known {
				t.Errorf("%s: place %#x has no processor", policy, f.control.Place())
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

// One of two goroutines comes back: the other one still waits. So does one that only
// polls.
func TestPlaceOfSeveral(t *testing.T) {
	for _, policy := range []string{"yield", "poll"} {
		s, f := attachTo(t, shape{wait: policy})
		first, d := largeReceive(t, s, f)
		second, e := largeReceive(t, s, f)
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
			return s.place.waiters
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
			t.Errorf("%s: nobody is said to wait while one does", policy)
		}
		f.done(e.Req, shm.StatusOK, 0)
		inTime(t, "the waits", both.Wait)
		if f.control.Place().Waits() {
			t.Errorf("%s: somebody is said to wait while none does", policy)
		}
	}
}

// A wait whose context has a deadline ends by itself: it is said, as long as one of them
// lasts, and a wait without a deadline is not told as one with it.
func TestPlaceOfWaitsWithADeadline(t *testing.T) {
	s, f := attachTo(t, shape{wait: "block"})
	r, d := largeReceive(t, s, f)
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
	waitIn(day, shm.Place.WaitsForGood)() // by then nobody waits for it any more
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

// Whoever computed between submitting and waiting is said to do so until it
// has waited many times without; to be put off by others is not computing.
func TestPlaceOfComputing(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, f := attachTo(t, shape{})
	receive := func(computes bool) bool {
		s.mu.Lock()
		s.place.found = time.Time{} // as if the last look were long past
		s.mu.Unlock()
		r, d := largeReceive(t, s, f)
		f.done(d.Req, shm.StatusOK, 0)
		if computes {
			for begin := wake.ThreadTime(); wake.ThreadTime()-begin < 2*computesMin; {
			}
		} else {
			s.mu.Lock()
			s.place.at = wake.ThreadTime() + time.Hour // as if no time had been used, however slow the test
			s.mu.Unlock()
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f.control.Place().Computes()
	}
	if receive(false) {
		t.Error("computing from the first")
	}
	for range 3 {
		if !receive(true) {
			t.Error("not computing after a wait with it")
		}
		for i := range idleMax - 1 {
			if !receive(false) {
				t.Errorf("not computing after %d waits without", i+1)
			}
		}
	}
	if receive(false) {
		t.Errorf("computing after %d waits without", idleMax)
	}
	// Once says nothing, nor twice at once, nor twice with many waits between.
	began := func(when time.Time) {
		s.mu.Lock()
		s.place.began = when
		s.mu.Unlock()
	}
	if receive(false); receive(true) {
		t.Error("computing after one wait with it")
	}
	if began(time.Now().Add(time.Hour)); receive(true) {
		t.Error("computing after two waits with it at once")
	}
	began(time.Time{})
	for range againMax + 1 {
		receive(false)
	}
	if receive(true) {
		t.Error("computing after two waits with it, far apart")
	}
	if began(time.Time{}); !receive(true) {
		t.Error("not computing after two waits with it")
	}
}

// What is short beside the transfer is not computing, nor is another thread's time, of
// which there can be more than has passed.
func TestPlaceOfOtherTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, f := attachTo(t, shape{})
	receive := func(bytes int, used, passed time.Duration) bool {
		s.mu.Lock()
		s.place.found = time.Time{}
		s.mu.Unlock()
		r, d := largeReceive(t, s, f)
		f.done(d.Req, shm.StatusOK, 0)
		s.mu.Lock()
		s.place.bytes, s.place.idle = bytes, idleMax-1 // the next wait without computing counts
		s.place.found, s.place.at = time.Now().Add(-passed), wake.ThreadTime()-used
		s.mu.Unlock()
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f.control.Place().Computes()
	}
	const hour = time.Hour
	for _, x := range []struct {
		bytes        int
		used, passed time.Duration
		want         bool
	}{
		{placeBytes, hour, 2 * hour, true},
		{placeBytes, 2 * hour, hour, false},
		{int(hour) * beside, hour / 2, hour, false},
		{int(hour) * beside, 2 * hour, 3 * hour, true},
	} {
		if got := receive(x.bytes, x.used, x.passed); got != x.want {
			t.Errorf("%d bytes, %v of %v used: computes is %v", x.bytes, x.used, x.passed, got)
		}
	}
}

// To post many messages takes time, and is not computing.
func TestPlaceOfPosting(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, f := attachTo(t, shape{})
	var all []Request
	for range 20 {
		r, d := largeReceive(t, s, f)
		f.done(d.Req, shm.StatusOK, 0)
		all = append(all, r)
		s.mu.Lock()
		s.place.found = time.Now().Add(time.Hour) // the next ones come soon after the first
		s.mu.Unlock()
	}
	s.mu.Lock()
	if s.place.after != 19 {
		t.Errorf("%d further submissions, want 19", s.place.after)
	}
	s.place.at = wake.ThreadTime() - 19*submitMax // as if posting had taken so long
	s.place.after += int(time.Hour / submitMax)   // however slow the test
	s.mu.Unlock()
	if _, err := all[0].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := f.control.Place(); p.Computes() {
		t.Errorf("place %#x after posting", p)
	}
}

// Who computes beside large messages lets others run once when it has submitted one.
func TestPlaceLetsOthers(t *testing.T) {
	s, f := attachTo(t, shape{})
	for _, x := range []struct {
		computes bool
		bytes    int
		want     bool
	}{{true, placeBytes, true}, {true, placeBytes - 1, false}, {false, placeBytes, false}} {
		s.mu.Lock()
		s.place.found = time.Time{}
		s.control.SetPlace(f.control.Place().Computing(x.computes))
		s.leaves(x.bytes)
		lets := s.place.lets
		s.leaveCall()
		s.mu.Lock()
		if lets != x.want || s.place.lets {
			t.Errorf("computes %v, %d bytes: lets others run %v, and %v afterwards", x.computes, x.bytes, lets, s.place.lets)
		}
		s.mu.Unlock()
	}
}

// A sidecar that does not look is not told.
func TestPlaceIsNegotiated(t *testing.T) {
	s, f := attachTo(t, shape{features: shm.FeaturesRequired})
	if f.hello.Features&shm.FeaturePlace == 0 {
		t.Errorf("features %#x offered", f.hello.Features)
	}
	r, d := largeReceive(t, s, f)
	f.done(d.Req, shm.StatusOK, 0)
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := f.control.Place(); p != 0 {
		t.Errorf("place %#x", p)
	}
}

// A call that waits says again and again that it looks, and hands back what it has taken:
// what lies unread then is seen (LAYOUT §8.1).
func TestWaitSaysThatItLooks(t *testing.T) {
	for _, policy := range []string{"yield", "poll", "block"} {
		s, f := attachTo(t, shape{wait: policy})
		first, d := largeReceive(t, s, f)
		second, e := largeReceive(t, s, f)
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
			if f.complete.Unread() {
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
