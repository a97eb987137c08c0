package outrigger

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/shm/wake"
)

// policies are the values of Config.Wait; for "", each process has its own CPU.
var policies = []string{"poll", "yield", "block", ""}

func TestContextEndsWait(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			s, f := attachTo(t, shape{wait: policy, sharers: 1})
			ctx, cancel := context.WithCancel(t.Context())
			wait := f.answering(func() {
				d := f.next(shm.OpRecv)
				cancel()
				f.next(shm.OpCancel)
				f.done(d.Req, shm.StatusCancelled, 0)
			})
			inTime(t, "recv", func() {
				if _, err := Recv(ctx, s.World(), make([]byte, 10), 1, 1); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want the context's error", err)
				}
			})
			wait()
		})
	}
}

func TestSidecarEndsWait(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			s, f := attachTo(t, shape{wait: policy, sharers: 1})
			wait := f.answering(func() {
				f.next(shm.OpRecv)
				f.control.SetFailure("out of cheese")
				f.hangUp()
			})
			inTime(t, "recv", func() {
				_, err := Recv(t.Context(), s.World(), make([]byte, 10), 1, 1)
				if !errors.Is(err, ErrSidecarGone) || !contains(err, "out of cheese") || !contains(err, "recv with rank 1 tag 1") {
					t.Errorf("got %v, want the sidecar's end, its reason and the call", err)
				}
			})
			wait()
		})
	}
}

func TestLastWordsOfSidecarCount(t *testing.T) {
	s, f := attachTo(t, shape{})
	r, err := Irecv(s.World(), make([]byte, 10), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 0)
	f.hangUp()
	<-s.watched
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatalf("the message that came before the sidecar's end is lost: %v", err)
	}
}

func TestTestNoticesSidecarsEnd(t *testing.T) {
	s, f := attachTo(t, shape{})
	r, err := Irecv(s.World(), make([]byte, 10), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f.hangUp()
	<-s.watched
	if _, over, err := r.Test(); over || !errors.Is(err, ErrSidecarGone) {
		t.Fatalf("got %v, %v", over, err)
	}
}

// TestCompletionForAnotherGoroutine: if two goroutines sleep on one word, a completion that
// one of them reads for the other one wakes that one.
func TestCompletionForAnotherGoroutine(t *testing.T) {
	s, f := attachTo(t, shape{wait: "block"})
	const rounds = 200
	wait := f.answering(func() {
		for range rounds {
			a, b := f.next(shm.OpRecv), f.next(shm.OpRecv)
			f.done(b.Req, shm.StatusOK, 0)
			f.done(a.Req, shm.StatusOK, 0)
		}
	})
	inTime(t, "both receives", func() {
		for range rounds {
			over := make(chan error)
			for range 2 {
				go func() {
					_, err := Recv(t.Context(), s.World(), make([]byte, 10), 1, 1)
					over <- err
				}()
			}
			for range 2 {
				if err := <-over; err != nil {
					t.Error(err)
				}
			}
		}
	})
	wait()
}

func TestWaitAnyForgetsWhatHasEnded(t *testing.T) {
	s, f := attachTo(t, shape{})
	requests := make([]Request, 3)
	ids := make([]uint32, 3)
	for i := range requests {
		var err error
		if requests[i], err = Irecv(s.World(), make([]byte, 10), 1, i); err != nil {
			t.Fatal(err)
		}
		ids[i] = f.next(shm.OpRecv).Req
	}
	for _, want := range []int{1, 0, 2} {
		f.done(ids[want], shm.StatusOK, 0)
		if i, _, err := WaitAny(t.Context(), requests); i != want || err != nil {
			t.Fatalf("got request %d, %v, want %d", i, err, want)
		}
	}
	if i, _, err := WaitAny(t.Context(), requests); i != -1 || err != nil {
		t.Fatalf("got request %d, %v of none", i, err)
	}
}

func TestWaitAnyOfTwoSessions(t *testing.T) {
	s, _ := attachTo(t, shape{})
	u, _ := attachTo(t, shape{})
	var requests []Request
	for _, x := range []*Session{s, u} {
		r, err := Irecv(x.World(), make([]byte, 10), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	if _, _, err := WaitAny(t.Context(), requests); !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v", err)
	}
}

// TestPollsWhereThereAreProcessors: a call polls only if no wait policy is set and each
// process of the job has a CPU.
func TestPollsWhereThereAreProcessors(t *testing.T) {
	for _, c := range []struct {
		wait    string
		sharers int
		polls   bool
	}{{"", 1, true}, {"", 1 << 20, false}, {"", 0, false}, {"yield", 1, false}, {"block", 1, false}} {
		s, _ := attachTo(t, shape{wait: c.wait, sharers: c.sharers})
		if got := s.wait.poll > 0; got != c.polls {
			t.Errorf("wait %q, %d processes: polls %v, want %v", c.wait, c.sharers, got, c.polls)
		}
	}
}

// TestNoPollsDuringBackOff: if a yield has shown that another thread computes on this CPU, the next
// waits do not poll.
func TestNoPollsDuringBackOff(t *testing.T) {
	s, _ := attachTo(t, shape{sharers: 1})
	polls := func() (n int) {
		if _, err := s.poll(t.Context(), func() bool { n++; return n == 3 }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := polls(); n != 3 {
		t.Fatalf("%d polls before any yield, want 3", n)
	}
	s.wait.backoff.update(s.age(), backoffMax)
	if n := polls(); n != 0 {
		t.Fatalf("%d polls during a back-off", n)
	}
	s.wait.backoff.update(s.age(), 0)
	if n := polls(); n != 3 {
		t.Fatalf("%d polls after a short yield, want 3", n)
	}
}

// TestFullRingHoldsUpNobodyElse: while the engine does not read this rank's ring, a call that
// has to submit an entry waits, and no other goroutine does.
func TestFullRingHoldsUpNobodyElse(t *testing.T) {
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			s, f := attachTo(t, shape{wait: policy, sharers: 1})
			r, err := Irecv(s.World(), make([]byte, 10), 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			for range 64 - 1 { // as many as the capacity of the ring
				if err := Send(t.Context(), s.World(), []byte{1}, 1, 1); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			submits := make(chan error)
			go func() { submits <- Send(ctx, s.World(), []byte{1}, 1, 1) }()
			f.done(r.id, shm.StatusOK, 0) // the ring is not read
			inTime(t, "wait", func() {
				if _, err := r.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
			cancel()
			inTime(t, "send", func() {
				if err := <-submits; err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want the context's error", err)
				}
			})
		})
	}
}

// TestContextEndsOpen: if the context ends while the sidecar does not answer, the error is
// that of the context, and not that of the deadline that ended the read.
func TestContextEndsOpen(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing is read from it
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	accepted := make(chan *net.UnixConn, 1)
	go func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
		}
		cancel()
		accepted <- conn
	}()
	defer func() { _ = (<-accepted).Close() }() // the server has sent nothing
	if _, err := Open(ctx, Config{Socket: path}); !errors.Is(err, context.Canceled) || contains(err, "i/o timeout") {
		t.Errorf("got %v, want the context's error", err)
	}
}

// TestBackoff: a yield that takes long prevents yields in waits, for longer each time. A short
// one ends that.
func TestBackoff(t *testing.T) {
	var c backoff
	now := time.Second
	for want := backoffMin; want <= backoffMax; want *= 2 {
		c.update(now, backoffAfter)
		if !c.active(now+want-1) || c.active(now+want) {
			t.Fatalf("backed off until %v after a yield, want %v", time.Duration(c.until.Load())-now, want)
		}
		now += want
	}
	c.update(now, backoffAfter)
	if c.active(now + backoffMax) {
		t.Error("backed off for longer than the maximum")
	}
	now += backoffMax
	c.update(now, backoffAfter-1)
	c.update(now, backoffAfter)
	if c.active(now + backoffMin) {
		t.Error("a short yield has not reset the back-off")
	}
}

// TestBackoffSleeps: a wait that would yield the CPU to a thread that keeps it sleeps at once,
// regardless of the policy's time for yields.
func TestBackoffSleeps(t *testing.T) {
	s, f := attachTo(t, shape{wait: "yield"})
	s.wait.yield = time.Hour
	s.wait.backoff.until.Store(int64(time.Hour))
	wait := f.answering(func() {
		d := f.next(shm.OpRecv)
		for atomic.LoadUint32(f.control.Waiting()) == 0 {
			wake.Yield()
		}
		f.done(d.Req, shm.StatusOK, 10)
		f.wakeClient()
	})
	inTime(t, "recv", func() {
		if _, err := Recv(t.Context(), s.World(), make([]byte, 10), 1, 1); err != nil {
			t.Error(err)
		}
	})
	wait()
}

// meddling is a context that runs code between a poll and the sleep after it.
type meddling struct {
	context.Context
	meddle func()
}

func (m meddling) Err() error {
	m.meddle()
	return m.Context.Err()
}

// TestTakenBeforeTheSleep: a goroutine that is about to sleep does not, if another one has
// read its completion and a third one has set the word to be woken.
func TestTakenBeforeTheSleep(t *testing.T) {
	s, f := attachTo(t, shape{wait: "block"})
	s.wait.nap = time.Hour
	r, err := Irecv(s.World(), make([]byte, 10), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	mine := f.next(shm.OpRecv)
	third := make(chan error, 1)
	ctx := meddling{t.Context(), sync.OnceFunc(func() {
		f.done(mine.Req, shm.StatusOK, 10)
		if _, err := s.pollOnce(func() bool { return false }); err != nil {
			t.Error(err)
		}
		go func() {
			_, err := Recv(t.Context(), s.World(), make([]byte, 10), 1, 2)
			third <- err
		}()
		for atomic.LoadUint32(f.control.Waiting()) == 0 {
			wake.Yield()
		}
	})}
	inTime(t, "wait", func() {
		if _, err := r.Wait(ctx); err != nil {
			t.Error(err)
		}
	})
	d := f.next(shm.OpRecv)
	f.done(d.Req, shm.StatusOK, 10)
	f.wakeClient()
	if err := <-third; err != nil {
		t.Error(err)
	}
}
