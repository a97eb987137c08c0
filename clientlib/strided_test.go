package outrigger

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// lent returns the number of arena blocks in use.
func lent(s *Session) int {
	s.arena.mu.Lock()
	defer s.arena.mu.Unlock()
	return len(s.arena.used)
}

// TestStridedReceiveIsTested: Test ends a strided receive as Wait does, with the elements
// unpacked.
func TestStridedReceiveIsTested(t *testing.T) {
	s, f := attachTo(t, shape{})
	buf := make([]uint64, 30)
	r, err := IrecvStrided(s.World(), buf, Layout{Count: 10, Block: 1, Stride: 3}, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, over, err := r.Test(); over || err != nil {
		t.Fatalf("over=%v: %v", over, err)
	}
	d := f.next(shm.OpRecv)
	for i := range 10 {
		f.arena[d.Addr()+8*uint64(i)] = byte(i + 1)
	}
	f.done(d.Req, shm.StatusOK, 80)
	if _, over, err := r.Test(); !over || err != nil {
		t.Fatalf("over=%v: %v", over, err)
	}
	for i := range 10 {
		if buf[3*i] != uint64(i+1) {
			t.Fatalf("element %d is %d", i, buf[3*i])
		}
	}
	if n := lent(s); n != 0 {
		t.Errorf("%d blocks of the arena are not given back", n)
	}
}

// TestStridedFailureGivesBack: a strided send or receive returns its arena memory when it
// fails.
func TestStridedFailureGivesBack(t *testing.T) {
	s, f := attachTo(t, shape{})
	buf, l := make([]uint64, 3000), Layout{Count: 1000, Block: 1, Stride: 3}
	if err := SendStrided(t.Context(), s.World(), buf, l, 99, 7); !errors.Is(err, ErrInvalid) {
		t.Fatalf("to a rank that there is not: %v", err)
	}
	r, err := IrecvStrided(s.World(), buf, l, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	f.done(f.next(shm.OpRecv).Req, shm.StatusTruncated, 1<<20)
	if _, err := r.Wait(t.Context()); !errors.Is(err, ErrTruncated) {
		t.Fatalf("a message that is too long: %v", err)
	}
	wait := f.answering(func() { f.done(f.next(shm.OpSend).Req, shm.StatusPeerLeft, 0) })
	if err := SendStrided(t.Context(), s.World(), buf, l, 1, 7); !errors.Is(err, ErrPeerFailed) {
		t.Fatalf("to a rank that has left: %v", err)
	}
	wait()
	if n := lent(s); n != 0 {
		t.Errorf("%d blocks of the arena are not given back", n)
	}
}
