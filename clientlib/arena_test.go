package outrigger

import (
	"errors"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestAllocRefused: a request that cannot be allocated is refused with its kind and the
// remedy.
func TestAllocRefused(t *testing.T) {
	s, _ := attachTo(t, shape{})
	if _, err := Alloc[int64](s, -1); !errors.Is(err, ErrInvalid) {
		t.Errorf("-1 elements: %v, want ErrInvalid", err)
	}
	if _, err := Alloc[int64](s, 1<<40); !errors.Is(err, ErrNoMemory) {
		t.Errorf("2^40 elements: %v, want ErrNoMemory", err)
	}
	all := len(s.arenaMem)
	held, err := Alloc[byte](s, all/2+1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Alloc[byte](s, all/2); !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "raise memory.arena") {
		t.Errorf("more than is free: %v", err)
	}
	if err := Free(s, held); err != nil {
		t.Fatal(err)
	}
	if _, err := Alloc[byte](s, all/2); err != nil {
		t.Errorf("after Free: %v", err)
	}
}

// TestBorrowedBlocksAreFoundAgain: a block is found again, even by a caller that requested
// another size than it got.
func TestBorrowedBlocksAreFoundAgain(t *testing.T) {
	var a arena
	a.init(1 << 20)
	for _, n := range []int{100, 9600, 16 << 10, cacheMax} {
		first, _, err := a.borrow(n)
		if err != nil {
			t.Fatal(err)
		}
		a.returnBlock(first, n)
		if again, _, err := a.borrow(n); err != nil || again != first {
			t.Errorf("%d bytes: at %d, and then at %d: %v", n, first, again, err)
		}
	}
}

// TestFreeInUse: memory that an operation reads or writes is not freed, for any operation and
// any part of the allocation. Otherwise the operation could write to the memory of the next
// Alloc.
func TestFreeInUse(t *testing.T) {
	s, f := attachTo(t, shape{})
	w := s.World()
	for name, x := range map[string]struct {
		start func(b []int64) (Request, error)
		op    shm.Op
	}{
		"a receive":         {func(b []int64) (Request, error) { return Irecv(w, b, 1, 7) }, shm.OpRecv},
		"a part's receive":  {func(b []int64) (Request, error) { return Irecv(w, b[2000:3000], 1, 7) }, shm.OpRecv},
		"of a few bytes":    {func(b []int64) (Request, error) { return Irecv(w, b[7:9], 1, 7) }, shm.OpRecv},
		"a send":            {func(b []int64) (Request, error) { return Isend(w, b, 1, 7) }, shm.OpSend},
		"collective's in":   {func(b []int64) (Request, error) { return Iallreduce(w, b, make([]int64, len(b)), Sum) }, shm.OpColl},
		"collective's out":  {func(b []int64) (Request, error) { return Iallreduce(w, make([]int64, len(b)), b, Sum) }, shm.OpColl},
		"one that goes on":  {func(b []int64) (Request, error) { return given(w, b) }, shm.OpRecv},
		"one that is taken": {func(b []int64) (Request, error) { return Irecv(w, b, AnySource, AnyTag) }, shm.OpRecv},
	} {
		b, err := Alloc[int64](s, 4096)
		if err != nil {
			t.Fatal(err)
		}
		r, err := x.start(b)
		if err != nil {
			t.Fatal(name, err)
		}
		if err := Free(s, b); !errors.Is(err, ErrInvalid) || !contains(err, "uses this memory") {
			t.Errorf("%s is under way: Free gives %v", name, err)
		}
		other, err := Alloc[int64](s, 4096)
		if err != nil || overlap(bytesOf(b), bytesOf(other)) {
			t.Errorf("%s is under way: the next Alloc gets its memory: %v", name, err)
		}
		if err := Free(s, other); err != nil {
			t.Errorf("%s is under way: other memory is not freed: %v", name, err)
		}
		d := f.next(x.op)
		f.done(d.Req, shm.StatusOK, 0)
		if _, err := r.Wait(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := Free(s, b); err != nil {
			t.Errorf("%s has ended: %v", name, err)
		}
	}
}

// given starts a receive that its caller abandons and that the engine has not ended.
func given(w *Comm, b []int64) (Request, error) {
	r, err := Irecv(w, b, 1, 7)
	if err == nil {
		_ = r.abandon() // its error says that the memory stays in use
	}
	return r, err
}
