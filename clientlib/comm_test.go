package outrigger

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

func TestWorldCannotBeFreed(t *testing.T) {
	s, f := attachTo(t, shape{})
	if err := s.World().Free(t.Context()); !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	f.quiet()
}

func TestFreedCommunicatorIsNotUsed(t *testing.T) {
	s, f := attachTo(t, shape{})
	c := &Comm{session: s, context: 5, group: newGroup([]uint32{0, 1})}
	wait := f.answering(func() { f.done(f.next(shm.OpColl).Req, shm.StatusOK, 0) })
	if err := c.Free(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait()
	f.next(shm.OpCommFree)
	if err := Send(t.Context(), c, []byte{1}, 1, 1); !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	f.quiet()
}

// TestAgreementsAtOnce: concurrent agreements of two communicators both result in 5; the
// second one to see this proposes again.
func TestAgreementsAtOnce(t *testing.T) {
	s, f := attachTo(t, shape{})
	numbers := make(chan uint32, 2)
	for range 2 {
		go func() {
			n, err := s.World().agree(t.Context())
			if err != nil {
				t.Error(err)
			}
			numbers <- n
		}()
	}
	wait := f.answering(func() {
		a, b := f.next(shm.OpColl), f.next(shm.OpColl)
		for _, d := range []shm.Descriptor{a, b} {
			f.answerColl(&d, 5)
		}
		for yes := 0; yes < 2; { // from here on every rank agrees with this rank
			d := f.next(shm.OpColl)
			if f.collType(&d) == shm.TypeUint8 && f.operand(&d)[0] == 1 {
				yes++
			}
			f.done(d.Req, shm.StatusOK, 0)
		}
	})
	a, b := <-numbers, <-numbers
	wait()
	if a == b || min(a, b) != 5 {
		t.Fatalf("the numbers are %d and %d, want 5 and another", a, b)
	}
}

func TestPersistentIsStartedOneAtATime(t *testing.T) {
	s, f := attachTo(t, shape{})
	p, err := RecvInit(s.World(), make([]byte, 10), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r, err := p.Start()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Start(); !errors.Is(err, ErrInvalid) {
			t.Fatalf("started twice: %v", err)
		}
		f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 0)
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOperationOfAnotherType(t *testing.T) {
	s, f := attachTo(t, shape{})
	add := OpFunc(true, func(inout, in []float64) {})
	used := arenaInUse(s)
	if err := Allreduce(t.Context(), s.World(), []float32{1}, []float32{0}, add); !errors.Is(err, ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	if err := Bcast(t.Context(), s.World(), []int{1}, 4); !errors.Is(err, ErrInvalid) {
		t.Fatalf("root 4 of 4: got %v", err)
	}
	f.quiet()
	if n := arenaInUse(s); n != used {
		t.Fatalf("%d bytes leaked", n-used)
	}
}

// TestDupSharesTheGroup: a Dup sends no list of ranks if the sidecar shares groups, and
// otherwise uses a split.
func TestDupSharesTheGroup(t *testing.T) {
	s, f := attachTo(t, shape{})
	wait := f.answering(func() {
		for range 2 { // the agreement
			f.done(f.next(shm.OpColl).Req, shm.StatusOK, 0)
		}
		d := f.next(shm.OpComm)
		if d.Class != shm.ClassNone || d.Aux() != 0 || d.Len() != 0 {
			f.t.Errorf("a Dup of the world is announced as %+v", d)
		}
		f.done(d.Req, shm.StatusOK, 0)
	})
	c, err := s.World().Dup(t.Context())
	wait()
	if err != nil || c.group != s.World().group {
		t.Fatalf("a Dup has a group of its own: %v", err)
	}
}

// TestDupThatFails: the error of a Dup for which the sidecar has no room names Dup and the bounds.
func TestDupThatFails(t *testing.T) {
	s, f := attachTo(t, shape{})
	wait := f.answering(func() {
		for range 2 { // the agreement
			f.done(f.next(shm.OpColl).Req, shm.StatusOK, 0)
		}
		f.done(f.next(shm.OpComm).Req, shm.StatusNoMemory, 0)
	})
	_, err := s.World().Dup(t.Context())
	wait()
	if !errors.Is(err, ErrNoMemory) || !contains(err, "rank 0: dup: ") || !contains(err, "524,288 ranks") || contains(err, "arena") {
		t.Errorf("got %v", err)
	}
	for what, bound := range map[string]string{"window": "4,096 windows", "lock": "65,536 locks", "flush": "64 flushes"} {
		if err := (&op{what: what}).beyond(); !errors.Is(err, ErrNoMemory) || !contains(err, bound) || contains(err, "arena") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestRanksOfGroups(t *testing.T) {
	for _, ranks := range [][]uint32{{7}, {1, 5, 9}, {9, 1, 5, 0}, {3, 2, 1}} {
		g := newGroup(ranks)
		for i, r := range ranks {
			if g.world(i) != r || g.rankOf(r) != i {
				t.Errorf("%v: rank %d is %d of the world, and that is %d", ranks, i, g.world(i), g.rankOf(r))
			}
		}
	}
}
