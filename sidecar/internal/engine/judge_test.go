package engine

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// source is a link that delivers the frames of peer 1, one a poll.
type source struct {
	link.Link
	frames []*link.Frame
	err    error
}

func (*source) Caps() link.Caps                            { return link.Caps{Name: "source"} }
func (*source) Abilities() link.Abilities                  { return link.Abilities{} }
func (*source) Post(_ link.Peer, frames []*link.Frame) int { return len(frames) }
func (*source) Forget(link.Peer)                           {}
func (*source) Close() error                               { return nil }

func (b *source) Poll(sink link.Sink) int {
	if len(b.frames) == 0 {
		return 0
	}
	f := b.frames[0]
	b.frames = b.frames[1:]
	b.err = sink.Deliver(1, &f.Head, f.Inline[:f.Head.Length])
	return 1
}

// brings makes a link with a greeting, the departure of rank 3, and the abort of rank 2, as
// the sidecar of pod 1 sends them.
func brings() *source {
	hello, left, abort := new(link.Frame), new(link.Frame), new(link.Frame)
	hello.Head = wire.Header{Type: wire.Ack}
	left.Head = wire.Header{Type: wire.Left, Seq: 1, Src: 3}
	abort.Head = wire.Header{Type: wire.Abort, Seq: 2, Src: 2, A: 5}
	abort.Head.Length = uint32(copy(abort.Inline[:], "called abort"))
	return &source{frames: []*link.Frame{hello, left, abort}}
}

// TestCauseInTheLink: a rank of another pod aborts, and the launcher kills a rank of this
// pod for that. The end is noticed while the abort is still in the link.
func TestCauseInTheLink(t *testing.T) {
	b := brings()
	e, _ := podOf(t, 2, core.Config{PodOf: []int32{0, 0, 1, 1}, Pods: 2}, b)
	closing(t, e)
	e.core.LinkUp(e.now, 1, link.Caps{})
	ended := e.byRank[0]
	e.SessionGone(ended.Session)
	for range 8 {
		e.Turn()
	}
	if f := e.Failure(); b.err != nil || f == nil || f.Rank != 2 || f.Code != 5 {
		t.Errorf("%v (%v), want the abort of rank 2", f, b.err)
	}
	if !ended.closing {
		t.Error("the session of rank 0 has not ended")
	}
}

// endless is a link that always has a frame, which has no effect on the job.
type endless struct{ source }

func (*endless) Poll(link.Sink) int { return 1 }

// TestEndWithoutACause checks that a link that always has frames does not keep the session
// of a vanished rank.
func TestEndWithoutACause(t *testing.T) {
	e, apps := podOf(t, 2, core.Config{PodOf: []int32{0, 0, 1, 1}, Pods: 2}, &endless{})
	closing(t, e)
	for range 3 * intakeBatch { // and it has published many descriptors before
		push(t, apps[1], &shm.Descriptor{Op: shm.OpCancel})
	}
	e.SessionGone(e.byRank[1].Session)
	for range judgeTurnsMax + 8 {
		e.Turn()
	}
	if f := e.Failure(); f == nil || f.Rank != 1 {
		t.Errorf("%v, want the end of rank 1", f)
	}
}

// TestFirstEndIsTheCause: a rank crashes, and its launcher kills its neighbour for that.
// Both sockets close before either session is judged, because a link has frames.
func TestFirstEndIsTheCause(t *testing.T) {
	for name, cancels := range map[string]int{"had said all": 0, "has descriptors left": 3 * intakeBatch} {
		t.Run(name, func(t *testing.T) {
			e, apps := podOf(t, 3, core.Config{PodOf: []int32{0, 0, 0, 1}, Pods: 2}, &endless{})
			closing(t, e)
			for range cancels {
				push(t, apps[1], &shm.Descriptor{Op: shm.OpCancel})
			}
			for _, rank := range []uint32{1, 2, 0} {
				e.SessionGone(e.byRank[rank].Session)
			}
			e.Turn()
			if there, speaks := e.Attached(1); !there || speaks != (cancels > 0) {
				t.Errorf("attached %v, speaks %v after a turn: the end was judged at once, and this tests nothing", there, speaks)
			}
			for range judgeTurnsMax + 8 {
				e.Turn()
			}
			if f := e.Failure(); f == nil || f.Rank != 1 {
				t.Errorf("%v, want the end of rank 1", f)
			}
			for rank := range uint32(3) {
				if there, _ := e.Attached(rank); there {
					t.Errorf("the session of rank %d has not ended", rank)
				}
			}
			if len(e.gone) > 0 || e.judgeTurns > 0 {
				t.Error("ends are still to be judged")
			}
		})
	}
}

// TestAttachedUntilDetach checks that a rank that has detached is not attached any more,
// even while its memory is in use.
func TestAttachedUntilDetach(t *testing.T) {
	e, apps := podOf(t, 2, core.Config{PodOf: []int32{0, 0, 1, 1}, Pods: 2}, &endless{})
	closing(t, e)
	push(t, apps[0], &shm.Descriptor{Op: shm.OpDetach})
	if there, speaks := e.Attached(0); !there || !speaks {
		t.Errorf("attached %v, speaks %v before its goodbye is read", there, speaks)
	}
	e.Turn()
	if there, speaks := e.Attached(0); there || speaks {
		t.Errorf("attached %v, speaks %v after its goodbye", there, speaks)
	}
	if there, speaks := e.Attached(1); !there || speaks {
		t.Errorf("its neighbour: attached %v, speaks %v", there, speaks)
	}
}

// TestEndIsAfterWhatItFollows checks that the time of a rank's end is the time of its
// judgement, which is compared with the times of launchers that may have killed the rank
// (podlife.Blame), and not the start of a turn that began before it.
func TestEndIsAfterWhatItFollows(t *testing.T) {
	e, _ := podOf(t, 1, core.Config{PodOf: []int32{0, 1}, Pods: 2}, &source{})
	closing(t, e)
	clock, late := e.clock, int64(0)
	e.clock = func() int64 { late += int64(time.Second); return clock() + late }
	e.SessionGone(e.byRank[0].Session)
	for range judgeTurnsMax + 8 {
		e.Turn()
		if f := e.Failure(); f != nil {
			if f.At <= e.now {
				t.Errorf("the end is of %d, and its turn began at %d", f.At, e.now)
			}
			return
		}
	}
	t.Error("the end was not judged")
}

// TestHeardBeforeTheEnd checks that a rank whose MPI has requested an abort outside of the
// session, and whose session ends without a detach, has aborted. A session that has
// detached does not wait.
func TestHeardBeforeTheEnd(t *testing.T) {
	e, _ := podOf(t, 2, core.Config{PodOf: []int32{0, 0, 1, 1}, Pods: 2}, &source{})
	closing(t, e)
	heard := make(chan uint32, 2)
	e.cfg.Heard = func(rank uint32) {
		e.Aborted(rank, 7)
		heard <- rank
	}
	end := func(rank uint32) {
		over, gone := make(chan struct{}), e.byRank[rank].Session
		go func() {
			defer close(over)
			e.SessionGone(gone)
		}()
		for ended := false; !ended; e.Turn() {
			select {
			case <-over:
				ended = true
			default:
			}
		}
	}
	e.detach(e.byRank[0], nil)
	end(0)
	if len(heard) != 0 {
		t.Error("the end of a rank that has said goodbye waits for what it has said elsewhere")
	}
	end(1)
	for range 8 {
		e.Turn()
	}
	if f := e.Failure(); len(heard) != 1 || f == nil || f.Rank != 1 || f.Code != 7 || f.Reason != podlife.TextAborted {
		t.Errorf("heard %d ranks, failure %v", len(heard), f)
	}
}
