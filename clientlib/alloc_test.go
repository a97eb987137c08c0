//go:build !race

package outrigger

import (
	"context"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestSmallMessagesAllocateNothing: a small message causes no allocation in the application:
// neither a silent send, nor a send in a slot, nor a receive with its wait.
func TestSmallMessagesAllocateNothing(t *testing.T) {
	s, f := attachTo(t, shape{})
	c, ctx := s.World(), t.Context()
	small, slotted, in := make([]byte, 8), make([]byte, 1024), make([]byte, 8)
	retired := uint64(0)
	round := func() {
		if err := Send(ctx, c, small, 1, 1); err != nil {
			t.Fatal(err)
		}
		f.next(shm.OpSend)
		retired++
		f.control.SetRetired(retired)
		if err := Send(ctx, c, slotted, 1, 1); err != nil {
			t.Fatal(err)
		}
		f.done(f.next(shm.OpSend).Req, shm.StatusOK, 0)
		r, err := Irecv(c, in, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		f.done(f.next(shm.OpRecv).Req, shm.StatusOK, 8)
		if _, err := r.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, found, err := c.iprobeAnswered(f); found || err != nil {
			t.Fatal(found, err)
		}
	}
	round() // the first call fills the tables
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// TestSmallStructsAllocateNothing: a small message of structs causes no allocation and no
// inspection of their type.
func TestSmallStructsAllocateNothing(t *testing.T) {
	s, f := attachTo(t, shape{})
	c, ctx, x := s.World(), t.Context(), structOf[[2]uint32](t)
	buf, retired := make([][2]uint32, 2), uint64(0)
	round := func() {
		if err := x.Send(ctx, c, buf, 1, 1); err != nil {
			t.Fatal(err)
		}
		f.next(shm.OpSend)
		retired++
		f.control.SetRetired(retired)
	}
	round()
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// iprobeAnswered is a probe that finds no message, split into steps so that the test can
// answer it.
func (c *Comm) iprobeAnswered(f *fake) (Status, bool, error) {
	r, err := c.startProbe(context.Background(), "iprobe", shm.OpProbe, shm.FlagNow, 1, 1)
	if err != nil {
		return Status{}, false, err
	}
	f.done(f.next(shm.OpProbe).Req, shm.StatusNoMessage, 0)
	out, err := r.await(f.t.Context())
	return out.Status, out.code != shm.StatusNoMessage, err
}
