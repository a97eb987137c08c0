package trace

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestTimesOfARankThatAttachesAgain checks that such a rank has the calls and the time of
// all its attachments, without the time between them.
func TestTimesOfARankThatAttachesAgain(t *testing.T) {
	x := NewTimes(0, 3, nil)
	call := func(from, to int64) {
		d := shm.Descriptor{Op: shm.OpSend, Req: 1}
		d.SetBody(0, 10, 0, 0)
		x.Submit(from, &d)
		x.Complete(to, &shm.Descriptor{Op: shm.OpDone, Req: 1})
	}
	call(1e9, 2e9)
	x.Leave(3e9)
	x.Again(10e9)
	call(11e9, 13e9)
	x.Leave(14e9)
	x.Again(20e9)
	s := x.Summary(21e9)
	if s.Seconds != 8 || s.InCalls != 3 || len(s.Calls) != 1 || s.Calls[0].Calls != 2 || s.Calls[0].Bytes != 20 {
		t.Errorf("%+v, want 8 s, 3 s in 2 sends of 20 bytes", s)
	}
}
