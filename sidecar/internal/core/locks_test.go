package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestLocksAreCountedUntilTheyEnd: a lock of a window counts for the pod whose rank waits for it, and
// then holds it, until it ends, however it ends.
func TestLocksAreCountedUntilTheyEnd(t *testing.T) {
	const far, windows, context = 300, 3, 9
	type job struct {
		*Core
		deliver func(h wire.Header)
		submit  func(d shm.Descriptor)
		links   *announced
	}
	// each calls f for each rank of the peer and each window.
	each := func(f func(rank, window uint32)) {
		for rank := range uint32(far) {
			for w := range uint32(windows) {
				f(1+rank, context+w)
			}
		}
	}
	free := func(j *job) {
		for w := range uint32(windows) {
			j.submit(shm.Descriptor{Op: shm.OpWinFree, Req: w, Context: context + w})
		}
	}
	unlock := func(j *job) {
		each(func(rank, w uint32) { j.deliver(wire.Header{Type: wire.Unlock, Src: rank, Context: w, A: 2}) })
	}
	for name, x := range map[string]struct {
		locks     int // of each rank and window
		exclusive uint64
		end       func(j *job)
	}{
		"released":           {1, 0, unlock},
		"released twice":     {2, 0, func(j *job) { unlock(j); unlock(j) }},
		"exclusive":          {1, 1, unlock},
		"the ranks leave":    {1, 0, func(j *job) { j.deliver(wire.Header{Type: wire.Bye}) }},
		"and some wait":      {1, 1, func(j *job) { j.deliver(wire.Header{Type: wire.Bye}) }},
		"freed":              {1, 0, free},
		"freed with waiters": {2, 1, free},
		"the target leaves":  {1, 0, func(j *job) { j.submit(shm.Descriptor{Op: shm.OpDetach}) }},
		"the target dies":    {1, 0, func(j *job) { j.Detach(3, 0, errGone) }},
		"the job fails": {2, 0, func(j *job) {
			j.deliver(wire.Header{Type: wire.Abort, Src: 1, A: 1})
			j.links.settle(t, j.Core, 1)
			j.Detach(3, 0, nil)
		}},
		"the peer dies": {1, 0, func(j *job) {
			j.PeerLost(3, 1, errGone)
			for j.Advance(3) > 0 {
			}
			j.Detach(3, 0, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pods := make([]int32, 1+far)
			for i := range far {
				pods[1+i] = 1
			}
			c, err := New(Config{PodOf: pods, Pods: 2}, &lone{regions: map[link.Region][]byte{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			c.LinkUp(1, 1, link.Caps{Name: "test"})
			if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, Credit: c.peers[1].Credit().Granted()}, nil); err != nil {
				t.Fatal(err)
			}
			j := &job{Core: c, links: &announced{}}
			j.deliver = func(h wire.Header) {
				t.Helper()
				h.Seq, h.Ack = c.peers[1].Arrived()+1, c.peers[1].Out().Base()
				if err := c.Deliver(2, 1, &h, nil); err != nil {
					t.Fatal(err)
				}
			}
			j.submit = func(d shm.Descriptor) {
				t.Helper()
				if err := c.Submit(2, 0, &d); err != nil {
					t.Fatal(err)
				}
			}
			for w := range uint32(windows) {
				j.submit(shm.Descriptor{Op: shm.OpWin, Req: w, Context: context + w})
			}
			for range x.locks {
				each(func(rank, w uint32) {
					j.deliver(wire.Header{Type: wire.Lock, Src: rank, Context: w, A: 1, B: x.exclusive})
				})
			}
			j.links.settle(t, c, 1)
			// The shared locks of one rank are one; those that wait are not.
			want := int64(far * windows * memory.LockCost)
			if x.exclusive == 1 {
				want *= int64(x.locks)
			}
			if got := c.ofPeers.Used(); got != want {
				t.Errorf("%d bytes are accounted for locks, want %d", got, want)
			}
			x.end(j)
			for c.Advance(3) > 0 {
			}
			if c.peers[1].State() == channel.Ready {
				j.links.settle(t, c, 1)
			}
			if got := c.ofPeers.Used(); got != 0 {
				t.Errorf("%d bytes are accounted when all locks have ended", got)
			}
		})
	}
}
