package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// story is a core of pod 0, whose rank 0 exposes a window to the ranks 1 and 2
// of pod 1.
type story struct {
	t     *testing.T
	core  *Core
	ports *lone
	seq   uint64
}

func exposing(t *testing.T) *story {
	t.Helper()
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{Self: 0, PodOf: []int32{0, 1, 1}, Pods: 2}, ports)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	win := shm.Descriptor{Op: shm.OpWin, Class: shm.ClassArena, Context: 9}
	win.SetBody(0, 4096, 0, 0)
	if err := c.Submit(1, 0, &win); err != nil {
		t.Fatal(err)
	}
	c.LinkUp(1, 1, link.Caps{Name: "test"})
	greeting := wire.Header{Type: wire.Ack, Credit: c.peers[1].granted}
	if err := c.Deliver(1, 1, &greeting, nil); err != nil {
		t.Fatal(err)
	}
	return &story{t: t, core: c, ports: ports}
}

// ask delivers a request of a rank and returns the answers to whomever it may
// concern.
func (s *story) ask(kind wire.Type, rank uint32, request, exclusive uint64) []wire.Header {
	s.t.Helper()
	s.seq++
	h := wire.Header{Type: kind, Seq: s.seq, Context: 9, Src: rank, A: request, B: exclusive}
	if err := s.core.Deliver(2, 1, &h, nil); err != nil {
		s.t.Fatal(err)
	}
	s.ports.frames = nil
	s.core.Flush(2, s.ports)
	var answers []wire.Header
	for _, f := range s.ports.frames {
		if f.Head.Type != wire.Ack {
			answers = append(answers, f.Head)
		}
	}
	return answers
}

// A rank that holds no lock cannot end another's, and is told so.
func TestUnlockOfAnothersLock(t *testing.T) {
	for name, exclusive := range map[string]uint64{"exclusive": 1, "shared": 0} {
		t.Run(name, func(t *testing.T) {
			s := exposing(t)
			if a := s.ask(wire.Lock, 1, 11, exclusive); len(a) != 1 || a[0].Type != wire.Locked || a[0].A != 11 {
				t.Fatalf("rank 1 locks: %v", a)
			}
			if a := s.ask(wire.Unlock, 2, 21, 0); len(a) != 1 || a[0].Type != wire.Flushed || shm.Status(a[0].B) != shm.StatusInvalid {
				t.Fatalf("rank 2 unlocks: %v, want an invalid request", a)
			}
			if a := s.ask(wire.Lock, 2, 22, 1); len(a) != 0 {
				t.Fatalf("rank 2 locks beside rank 1: %v", a)
			}
			a := s.ask(wire.Unlock, 1, 12, 0)
			if len(a) != 2 || a[0].Type != wire.Locked || a[0].A != 22 || a[1].Type != wire.Flushed || a[1].B != 0 {
				t.Fatalf("rank 1 unlocks: %v, want the lock for rank 2", a)
			}
		})
	}
}

// A rank may share a lock with itself; the last unlock counts.
func TestSharedLockIsCounted(t *testing.T) {
	s := exposing(t)
	s.ask(wire.Lock, 1, 11, 0)
	s.ask(wire.Lock, 1, 12, 0)
	s.ask(wire.Lock, 2, 21, 1)
	if a := s.ask(wire.Unlock, 1, 13, 0); len(a) != 1 || a[0].Type != wire.Flushed {
		t.Fatalf("the first unlock: %v", a)
	}
	if a := s.ask(wire.Unlock, 1, 14, 0); len(a) != 2 || a[0].Type != wire.Locked || a[0].A != 21 {
		t.Fatalf("the last unlock: %v, want the lock for rank 2", a)
	}
}

// However many wait for a lock, each gets it, and a step grants a bounded number.
func TestManyWaitForALock(t *testing.T) {
	const many = 3*advanceItems + 5
	s := exposing(t)
	s.ask(wire.Lock, 1, 1, 1)
	for i := range uint64(many) {
		s.ask(wire.Lock, 2, 100+i, 0)
	}
	granted := len(s.ask(wire.Unlock, 1, 2, 0)) - 1 // and the answer
	if granted > advanceItems {
		t.Errorf("%d locks are granted at once", granted)
	}
	for s.core.Advance(3) > 0 {
		s.ports.frames = nil
		for s.core.Flush(3, s.ports) {
		}
		granted += len(s.ports.frames)
	}
	if granted != many {
		t.Errorf("%d of %d locks are granted", granted, many)
	}
}

// The locks of a rank that leaves end however many windows there are, a bounded
// number in one step, also while windows are freed.
func TestLocksOfWhoHasLeft(t *testing.T) {
	const windows = 4096 - 1
	x := newCrowd(t)
	for rank := range SessionID(2) {
		for i := range uint32(windows) {
			x.submit(rank, shm.Descriptor{Op: shm.OpWin, Req: 1, Context: 100 + i})
		}
	}
	for dst := range uint32(2) {
		for i := range uint64(windows) {
			x.deliver(wire.Header{Type: wire.Lock, Context: 100 + uint32(i), Src: 2, Dst: dst, A: 1, B: i % 2}, nil)
			x.deliver(wire.Header{Type: wire.Lock, Context: 100 + uint32(i), Src: 3, Dst: dst, A: 2, B: 1}, nil)
		}
	}
	granted := func() (n int) {
		x.frames = x.frames[:0]
		for x.core.Flush(2, x) {
		}
		for i := range x.frames {
			if x.frames[i].Head.Type == wire.Locked {
				n++
			}
		}
		return n
	}
	if n := granted(); n != 2*windows {
		t.Fatalf("%d locks of %d are granted", n, 2*windows)
	}
	x.deliver(wire.Header{Type: wire.Left, Src: 2}, nil)
	all, freed := 0, uint32(0)
	for x.core.Advance(3) > 0 {
		n := granted()
		if all += n; n > advanceItems+1 {
			t.Errorf("%d locks end in one step", n)
		}
		if freed < 5 { // those that were locked first
			x.submit(0, shm.Descriptor{Op: shm.OpWinFree, Req: 1, Context: 100 + freed})
			freed++
		}
	}
	if all < 2*windows-int(freed) || all > 2*windows {
		t.Errorf("%d locks are granted to who waited, %d windows are left", all, 2*windows-freed)
	}
}
