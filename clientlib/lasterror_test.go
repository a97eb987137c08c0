package outrigger

import (
	"context"
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestLastErrorIsTold: the sidecar gets the error of a failed call before the call returns. It
// does not get an error that is the consequence of another failure, or that the program itself
// has caused on purpose.
func TestLastErrorIsTold(t *testing.T) {
	s, f := attachTo(t, shape{})
	w := s.World()
	receive := func(status shm.Status) {
		r, err := Irecv(w, make([]int64, 100), 1, 7)
		if err != nil {
			t.Fatal(err)
		}
		d := shm.Descriptor{Op: shm.OpDone, Req: f.next(shm.OpRecv).Req, Status: status, Peer: 1, Tag: 7}
		d.SetBody(0, 1600, 0, 0)
		f.tell(d)
		_, _ = r.Wait(t.Context()) // its error is checked below
	}
	want := func(when, text string, absent uint32) {
		t.Helper()
		if gotAbsent, got := f.control.LastError(); got != text || gotAbsent != absent {
			t.Errorf("%s: %q, absent %d, want %q and %d", when, got, gotAbsent, text, absent)
		}
	}
	const truncated = "irecv with rank 1 tag 7 (800 bytes): the message is longer than the buffer: 1600 bytes"
	receive(shm.StatusTruncated)
	want("a message that is too long", truncated, 0)
	receive(shm.StatusCancelled)
	receive(shm.StatusAborted)
	over, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-over.Done()
	r, err := Irecv(w, make([]int64, 100), 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(over); err == nil {
		t.Error("a wait until a time that is over has ended well")
	}
	want("consequences", truncated, 0)
	f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 0)
	b, err := w.Ibarrier()
	if err != nil {
		t.Fatal(err)
	}
	d := shm.Descriptor{Op: shm.OpDone, Req: f.next(shm.OpColl).Req, Status: shm.StatusPeerLeft}
	d.SetBody(0, 0, 3, 0)
	f.tell(d)
	if _, err := b.Wait(t.Context()); err == nil {
		t.Error("a barrier without a rank has ended well")
	}
	want("a rank that has left before a barrier", "barrier", 3)
}
