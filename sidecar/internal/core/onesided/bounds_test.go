package onesided

import (
	"fmt"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestAsksAreWithinThePeersBounds checks that the requests of a sidecar at a peer never exceed
// the number from which the peer reports a violation (P§6), whatever its ranks submit, and
// that all of them end.
func TestAsksAreWithinThePeersBounds(t *testing.T) {
	const many, each, target = 2, shm.MaxRequests - 1, 2
	for name, ask := range map[string]struct {
		d      shm.Descriptor
		answer wire.Type
		most   int
		ends   bool // requests beyond the bound end at once
	}{
		"fetches": {shm.Descriptor{Op: shm.OpFetch, Peer: target, Class: shm.ClassInline}, wire.Fetched, requestWindow, false},
		"flushes": {shm.Descriptor{Op: shm.OpFlush, Peer: target}, wire.Flushed, requestWindow, false},
		"unlocks": {shm.Descriptor{Op: shm.OpUnlock, Peer: target}, wire.Flushed, requestWindow, false},
		"locks":   {shm.Descriptor{Op: shm.OpLock, Peer: target}, wire.Locked, LockLimit, true},
		"to all":  {shm.Descriptor{Op: shm.OpFlush, Peer: shm.AnySource}, wire.Flushed, many * flushWindow, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.silent = true
			s.at[0], s.at[2] = Idle, Idle
			for rank := range ranks.SessionID(many) {
				for req := range uint32(each) {
					d := ask.d
					d.Req, d.Context = req, 9
					if err := s.room.Submit(rank, &d); err != nil {
						t.Fatal(err)
					}
				}
			}
			early, answered := s.ended, 0
			if ask.ends != (early > 0) {
				t.Errorf("%d requests end at once", early)
			}
			for s.ended < many*each {
				s.turn(1)
				asked := s.frames
				s.frames = nil
				if len(asked) > ask.most {
					t.Fatalf("%d requests are not answered, want at most %d", len(asked), ask.most)
				}
				for _, x := range asked {
					answered++
					if err := s.room.Frame(1, &wire.Header{Type: ask.answer, A: x.frame.Head.A}, nil); err != nil {
						t.Fatal(err)
					}
				}
				if len(asked) == 0 {
					t.Fatalf("%d of %d requests have ended, and no more is asked", s.ended, many*each)
				}
			}
			if n := s.room.Open().Asked; answered+early != many*each || n != 0 {
				t.Errorf("%d asked and %d refused of %d; %d are said to be open", answered, early, many*each, n)
			}
		})
	}
}

// TestLocksOfOneRankLeaveOthersTheirShare checks that a rank that waits for as many locks at a peer as
// it can does not make a lock of another rank there fail, that both together stay within the peer's
// bound (P§5.6), and that granted locks are given back.
func TestLocksOfOneRankLeaveOthersTheirShare(t *testing.T) {
	const share = LockLimit / 4 / 2
	s := newStage(t)
	s.silent = true
	submit := func(rank ranks.SessionID, requests int) {
		for req := range uint32(requests) {
			if err := s.room.Submit(rank, &shm.Descriptor{Op: shm.OpLock, Req: req, Peer: 2, Context: 9}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for round := range 2 {
		submit(0, shm.MaxRequests)
		if n := len(s.frames); n != LockLimit-2*share {
			t.Errorf("round %d: one rank waits for %d locks, want %d", round, n, LockLimit-2*share)
		}
		refused := s.ended
		submit(1, share)
		if s.ended != refused {
			t.Errorf("round %d: %d of %d locks of the other rank fail", round, s.ended-refused, share)
		}
		if len(s.frames) > LockLimit {
			t.Errorf("round %d: a peer is asked for %d locks, at most %d", round, len(s.frames), LockLimit)
		}
		for _, x := range s.frames {
			if err := s.room.Frame(1, &wire.Header{Type: wire.Locked, A: x.frame.Head.A}, nil); err != nil {
				t.Fatal(err)
			}
		}
		s.frames, s.ended = nil, 0
		if n := s.room.Open().Asked; n != 0 {
			t.Errorf("round %d: %d locks are counted when all are granted", round, n)
		}
	}
}

// granted returns the number of locks that were granted since the last call.
func (s *stage) granted() (n int) {
	for _, x := range s.frames {
		if x.frame.Head.Type == wire.Locked {
			n++
		}
	}
	s.frames = nil
	return n
}

func (s *stage) window(rank ranks.SessionID, number uint32) {
	s.t.Helper()
	if err := s.room.SubmitWindow(rank, &shm.Descriptor{Op: shm.OpWin, Req: 1, Context: number}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) ask(t wire.Type, src, dst, window uint32, request, exclusive uint64) {
	s.t.Helper()
	from := link.Peer(s.room.cfg.PodOf[src])
	if err := s.room.Frame(from, &wire.Header{Type: t, Context: window, Src: src, Dst: dst, A: request, B: exclusive}, nil); err != nil {
		s.t.Fatal(err)
	}
}

// TestManyWaitForALock checks that each of many waiters gets the lock, and that a step grants
// it to a bounded number of them.
func TestManyWaitForALock(t *testing.T) {
	const many = 3*grantsAStep + 5
	s := newStage(t)
	s.silent = true
	s.window(0, 9)
	s.ask(wire.Lock, 2, 0, 9, 1, 1)
	for i := range uint64(many) {
		s.ask(wire.Lock, 3, 0, 9, 100+i, 0)
	}
	s.granted()
	s.ask(wire.Unlock, 2, 0, 9, 2, 0)
	granted := s.granted()
	if granted > grantsAStep {
		t.Errorf("%d locks are granted at once", granted)
	}
	for s.room.Pending() {
		s.room.Grant()
		n := s.granted()
		if granted += n; n > grantsAStep {
			t.Errorf("%d locks are granted in one step", n)
		}
	}
	if granted != many {
		t.Errorf("%d of %d locks are granted", granted, many)
	}
	if s.kept[1] != memory.LockCost {
		t.Errorf("%d bytes are kept for the pod of the rank that holds the lock", s.kept[1])
	}
}

// TestLocksOfWhoHasLeft checks that the locks of a rank that leaves end however many windows
// there are, a bounded number in one step, also if windows are freed meanwhile.
func TestLocksOfWhoHasLeft(t *testing.T) {
	const windows, budget = windowLimit - 1, 1000
	s := newStage(t)
	s.silent = true
	for rank := range ranks.SessionID(2) {
		for i := range uint32(windows) {
			s.window(rank, 100+i)
		}
	}
	for dst := range uint32(2) {
		for i := range uint32(windows) {
			s.ask(wire.Lock, 2, dst, 100+i, 1, uint64(i%2))
			s.ask(wire.Lock, 3, dst, 100+i, 2, 1)
		}
	}
	if n := s.granted(); n != 2*windows {
		t.Fatalf("%d locks of %d are granted", n, 2*windows)
	}
	s.job.Leave(2)
	s.room.RankLeft(2)
	all, freed := 0, uint32(0)
	for more := true; more; {
		_, more = s.room.SweepLocks(budget)
		n := s.granted()
		if all += n; n > budget {
			t.Errorf("%d locks end in one step", n)
		}
		if freed < 5 { // the windows that were locked first
			if err := s.room.FreeWindow(0, &shm.Descriptor{Op: shm.OpWinFree, Req: 1, Context: 100 + freed}); err != nil {
				t.Fatal(err)
			}
			freed++
		}
	}
	if all < 2*windows-int(freed) || all > 2*windows {
		t.Errorf("%d locks are granted to who waited, %d windows are left", all, 2*windows-freed)
	}
	for _, h := range s.room.hosted {
		for number, w := range h.wins {
			if w.holders.Len() != 1 || w.holders.times(3) != 1 || !w.exclusive {
				t.Fatalf("window %d of rank %d is held by %v", number, h.rank, w.holders)
			}
		}
	}
}

// TestMissesAreBounded: a peer accesses many windows that do not exist here. The sidecar
// records a bounded number of them, and from then on each flush of all ranks fails, since its
// window may be one that was not recorded.
func TestMissesAreBounded(t *testing.T) {
	s := newStage(t)
	for i := range uint32(missesMax + 1) {
		if to, err := s.room.Place(1, &wire.Header{Type: wire.Put, Context: 100 + i, Src: 2, Length: 8}); err != nil || to.Where != Discard {
			t.Fatal(to, err)
		}
	}
	if n := s.room.Open().Missed; n != missesMax || !s.room.peers[1].missed.more {
		t.Errorf("%d of %d are kept", n, missesMax)
	}
	s.frames = nil
	if err := s.room.Frame(1, &wire.Header{Type: wire.Flush, Context: 9, Src: 3, Tag: 1}, nil); err != nil {
		t.Fatal(err)
	}
	if shm.Status(s.frames[0].frame.Head.B) != shm.StatusInvalid {
		t.Error("a flush of all ranks is said to have gone well")
	}
}

// TestMissesAreReported checks that the next flush reports an access to a window that did not exist,
// or that was freed while the connection of a put was broken, also if the window exists by then, and
// that later flushes do not.
func TestMissesAreReported(t *testing.T) {
	for name, all := range map[string]uint64{"one": 0, "all": 1} {
		for _, freed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/freed=%t", name, freed), func(t *testing.T) {
				s := newStage(t)
				put := &wire.Header{Type: wire.Put, Context: 9, Src: 2, Length: 8}
				if freed {
					d := shm.Descriptor{Op: shm.OpWin, Req: 1, Context: 9, Class: shm.ClassArena}
					d.SetBody(0, 8, 0, 0)
					if err := s.room.SubmitWindow(0, &d); err != nil {
						t.Fatal(err)
					}
				}
				to, err := s.room.Place(1, put)
				if err != nil || (to.Where == Memory) != freed {
					t.Fatal(to, err)
				}
				if freed {
					if err := s.room.FreeWindow(0, &shm.Descriptor{Op: shm.OpWinFree, Req: 2, Context: 9}); err != nil {
						t.Fatal(err)
					}
					if !s.room.Divert(1, to.Of, put) {
						t.Fatal("the payload is not discarded")
					}
				}
				if err := s.room.SubmitWindow(0, &shm.Descriptor{Op: shm.OpWin, Req: 3, Context: 9}); err != nil {
					t.Fatal(err)
				}
				for _, want := range []shm.Status{shm.StatusInvalid, shm.StatusOK} {
					s.frames = nil
					if err := s.room.Frame(1, &wire.Header{Type: wire.Flush, Context: 9, Src: 2, Tag: all}, nil); err != nil {
						t.Fatal(err)
					}
					if got := shm.Status(s.frames[0].frame.Head.B); got != want {
						t.Errorf("the flush ends with %v, want %v", got, want)
					}
				}
			})
		}
	}
}

// TestViewsAreBounded checks that a peer is asked for a bounded number of windows at once.
// Other windows are accessed by frames until some requests are answered.
func TestViewsAreBounded(t *testing.T) {
	s := newStage(t)
	s.silent = true
	s.caps[1] = link.Caps{Register: true, Read: true, Write: true}
	asked := func(first uint32) (list []uint64) {
		for i := range uint32(exposeWindow + 1) {
			d := shm.Descriptor{Op: shm.OpPut, Req: 1 + first + i, Peer: 2, Context: first + i, Class: shm.ClassArena}
			d.SetBody(buffers, 100, 0, 0)
			if err := s.room.Submit(0, &d); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range s.frames {
			if x.frame.Head.Type == wire.Expose {
				list = append(list, x.frame.Head.A)
			}
		}
		s.frames = nil
		return list
	}
	list := asked(100)
	if len(list) != exposeWindow {
		t.Fatalf("%d windows are asked for, want %d", len(list), exposeWindow)
	}
	if n := len(asked(1000)); n != 0 {
		t.Errorf("%d more are asked for while none is answered", n)
	}
	for _, id := range list[:10] {
		body := make([]byte, 64)
		n := (&wire.ExposedBody{}).Encode(body)
		if err := s.room.Frame(1, &wire.Header{Type: wire.Exposed, A: id, B: 1}, body[:n]); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(asked(2000)); n != 10 {
		t.Errorf("%d are asked for when 10 are answered", n)
	}
}

// TestTooManyWindows checks that a rank with windowLimit windows gets a status for one more,
// keeps its session, and can create one again after it has freed one.
func TestTooManyWindows(t *testing.T) {
	s := newStage(t)
	create := func(number uint32) string {
		t.Helper()
		s.log.Reset()
		if err := s.room.SubmitWindow(0, &shm.Descriptor{Op: shm.OpWin, Req: 1, Context: number}); err != nil {
			t.Fatalf("window %d: %v", number, err)
		}
		return s.log.String()
	}
	ends := func(status shm.Status) string { return fmt.Sprintf("rank 0: request 1 ends, status %d\n", status) }
	for number := range uint32(windowLimit) {
		if got, want := create(number), ends(shm.StatusOK); got != want {
			t.Fatalf("window %d: %q, want %q", number, got, want)
		}
	}
	if got, want := create(windowLimit), ends(shm.StatusNoMemory); got != want {
		t.Errorf("one more: %q, want %q", got, want)
	}
	if err := s.room.FreeWindow(0, &shm.Descriptor{Op: shm.OpWinFree, Req: 1, Context: 7}); err != nil {
		t.Fatal(err)
	}
	if got, want := create(windowLimit), ends(shm.StatusOK); got != want {
		t.Errorf("after one was freed: %q, want %q", got, want)
	}
}
