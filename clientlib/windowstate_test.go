package outrigger

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestWindowMistakes: a mistake with a window is an error of the call that makes it, with
// window and target, and the sidecar does not see the call.
func TestWindowMistakes(t *testing.T) {
	s, f := attachTo(t, shape{})
	ctx := t.Context()
	mem, err := Alloc[int64](s, 4)
	if err != nil {
		t.Fatal(err)
	}
	w := &Window[int64]{comm: s.World(), number: 9, parts: &parts{same: 32}}
	lockIt := func() {
		t.Helper()
		wait := f.answering(func() { f.done(f.next(shm.OpLock).Req, shm.StatusOK, 0) })
		if err := w.Lock(ctx, 1, true); err != nil {
			t.Fatal(err)
		}
		wait()
	}
	told := func(what string, err error, want string) {
		t.Helper()
		var e *Error
		if !errors.As(err, &e) || !contains(err, want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		f.quiet()
	}
	told("bounds", w.Put(ctx, mem, 1, 1), "4 elements from 1 on, of window 9, which has 4 elements at rank 1")
	told("far out", w.Get(ctx, mem, 1, 1<<50), "of window 9, which has 4 elements at rank 1")
	told("no lock", w.Unlock(ctx, 1), "this rank does not have the lock of window 9 at rank 1; Lock it first")
	lockIt()
	told("twice", w.Lock(ctx, 1, false), "this rank has, or waits for, the lock of window 9 at rank 1; Unlock it first")
	told("free", w.Free(ctx), "this rank still has the lock of window 9 at world rank 1; Unlock it first")
	wait := f.answering(func() { f.done(f.next(shm.OpUnlock).Req, shm.StatusOK, 0) })
	if err := w.Unlock(ctx, 1); err != nil {
		t.Fatal(err)
	}
	wait()
	lockIt() // once more

	if err := Free(s, mem); err != nil {
		t.Fatal(err)
	}
	told("freed memory", w.Put(ctx, mem, 1, 0), "the buffer is memory from Alloc that was freed")
	wait = f.answering(func() { f.done(f.next(shm.OpFlush).Req, shm.StatusInvalid, 0) })
	err = w.Flush(ctx, 2)
	wait()
	told("refused", err, "rank 2 has closed its session, or has no window 9 any more, or an access to it since the last flush was out of its bounds")

	w.freed.Store(true)
	for what, err := range map[string]error{
		"put": w.Put(ctx, mem, 1, 0), "flush": w.Flush(ctx, 1), "fence": w.Fence(ctx), "lock": w.Lock(ctx, 1, true),
		"unlock": w.Unlock(ctx, 1), "post": w.Post(ctx, nil), "free": w.Free(ctx),
	} {
		if what != "free" { // the window is locked
			told(what, err, "window 9 has been freed")
		}
	}
}

// TestFreedMemoryIsNoBuffer: freed memory is refused as a buffer, and memory that is allocated
// next to it is accepted.
func TestFreedMemoryIsNoBuffer(t *testing.T) {
	s, f := attachTo(t, shape{})
	var mem [3][]int64
	for i := range mem {
		var err error
		if mem[i], err = Alloc[int64](s, 64); err != nil {
			t.Fatal(err)
		}
	}
	if err := Free(s, mem[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := Isend(s.World(), mem[1], 1, 1); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("send: %v", err)
	}
	if _, err := Irecv(s.World(), mem[1][3:20], 1, 1); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("recv: %v", err)
	}
	if _, err := Ibcast(s.World(), mem[1], 0); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("collective: %v", err)
	}
	if _, err := NewWindow(t.Context(), s.World(), mem[1]); !errors.Is(err, ErrNotAllocated) {
		t.Errorf("window: %v", err)
	}
	f.quiet()
	for _, i := range []int{0, 2} {
		if _, err := Isend(s.World(), mem[i], 1, 1); err != nil {
			t.Errorf("buffer %d: %v", i, err)
		}
		f.next(shm.OpSend)
	}
}

// TestFreedMemoryIsNotPacked: the same holds for packed elements: memory of another allocation
// is neither sent nor filled.
func TestFreedMemoryIsNotPacked(t *testing.T) {
	s, f := attachTo(t, shape{})
	c, ctx, x := s.World(), t.Context(), structOf[loose](t)
	gone, err := x.Alloc(s, 8)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Alloc[int64](s, 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(x.Free(s, gone), Free(s, plain)); err != nil {
		t.Fatal(err)
	}
	mine, n := make([]loose, 8), []int{1, 1, 1, 1}
	drop := func(_ any, err error) error { return err }
	for what, err := range map[string]error{
		"send":         x.Send(ctx, c, gone, 1, 1),
		"isend":        drop(x.Isend(c, gone[2:3], 1, 1)),
		"recv":         drop(x.Recv(ctx, c, gone, 1, 1)),
		"irecv":        drop(x.Irecv(c, gone, 1, 1)),
		"bcast":        x.Bcast(ctx, c, gone, 1),
		"gather in":    x.Gather(ctx, c, gone[:2], nil, 1),
		"gather out":   x.Gather(ctx, c, mine[:2], gone, 0),
		"scatter in":   x.Scatter(ctx, c, gone, mine[:2], 0),
		"scatter out":  x.Scatter(ctx, c, nil, gone[:2], 1),
		"allgather":    x.Allgather(ctx, c, mine[:2], gone),
		"gatherv in":   x.Gatherv(ctx, c, gone[:2], nil, nil, nil, 1),
		"gatherv out":  x.Gatherv(ctx, c, mine[:1], gone, n, nil, 0),
		"scatterv in":  x.Scatterv(ctx, c, gone, n, nil, mine[:1], 0),
		"scatterv out": x.Scatterv(ctx, c, nil, nil, nil, gone[:1], 1),
		"allgatherv":   x.Allgatherv(ctx, c, gone[:1], mine, n, nil),
		"alltoall":     x.Alltoall(ctx, c, mine, gone),
		"alltoallv":    x.Alltoallv(ctx, c, gone, n, nil, mine, n, nil),
		"strided":      SendStrided(ctx, c, plain, Layout{2, 1, 4}, 1, 1),
		"into strided": drop(IrecvStrided(c, plain, Layout{2, 1, 4}, 1, 1)),
		"indexed":      SendIndexed(ctx, c, plain, Indexed{nil, []int{5}}, 1, 1),
		"into indexed": drop(IrecvIndexed(c, plain, Indexed{nil, []int{5}}, 1, 1)),
	} {
		if !errors.Is(err, ErrNotAllocated) || !contains(err, "memory from Alloc that was freed") {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.quiet()
}

// TestSendsWithoutTheArenasLock: a program that has freed no memory does not wait for the
// arena's lock when it sends from the arena, even if the library has packed messages in the
// meantime.
func TestSendsWithoutTheArenasLock(t *testing.T) {
	s, f := attachTo(t, shape{})
	mem, err := Alloc[int64](s, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := SendStrided(t.Context(), s.World(), mem, Layout{2, 1, 4}, 1, 1); err != nil {
		t.Fatal(err)
	}
	f.next(shm.OpSend)
	if err := structOf[loose](t).Send(t.Context(), s.World(), nil, 1, 1); err != nil { // there is nothing to return
		t.Fatal(err)
	}
	f.next(shm.OpSend)
	s.arena.mu.Lock()
	defer s.arena.mu.Unlock()
	inTime(t, "a send from the arena", func() {
		if _, err := Isend(s.World(), mem, 1, 1); err != nil {
			t.Error(err)
		}
	})
	f.next(shm.OpSend)
}

// TestExposedMemoryIsNotFreed: memory of a window is not freed while ranks can access it.
func TestExposedMemoryIsNotFreed(t *testing.T) {
	s, _ := attachTo(t, shape{})
	mem, err := Alloc[int64](s, 64)
	if err != nil {
		t.Fatal(err)
	}
	s.expose(5, bytesOf(mem[8:16]))
	if err := Free(s, mem); !contains(err, "window 5 has this memory; Free the window first") {
		t.Errorf("under a window: %v", err)
	}
	s.withdraw(5)
	if err := Free(s, mem); err != nil {
		t.Error(err)
	}
}

// TestPartsOfAWindow: there is one number if all ranks expose parts of the same size, and one
// for each rank otherwise.
func TestPartsOfAWindow(t *testing.T) {
	for rank, want := range []int64{8, 0, 24} {
		if got := (&parts{each: []int64{8, 0, 24}}).of(rank); got != want {
			t.Errorf("rank %d exposes %d bytes, want %d", rank, got, want)
		}
		if got := (&parts{same: 8}).of(rank); got != 8 {
			t.Errorf("rank %d exposes %d bytes, want 8", rank, got)
		}
	}
}
