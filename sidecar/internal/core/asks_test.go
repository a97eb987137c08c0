package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/onesided"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestAsksAreWithinThePeersBounds: whatever the ranks of a sidecar ask of a peer,
// it never keeps so much of it that the sidecar breaks the protocol (P§6), and all
// of it is done in the end.
func TestAsksAreWithinThePeersBounds(t *testing.T) {
	const many, each = 2, shm.MaxRequests - 1
	for name, ask := range map[string]struct {
		d      shm.Descriptor
		kind   wire.Type
		answer wire.Type
		most   int
		ends   bool // what is beyond the bound ends at once
	}{
		"fetches": {shm.Descriptor{Op: shm.OpFetch, Class: shm.ClassInline}, wire.Fetch, wire.Fetched, 1 << 16, false},
		"flushes": {shm.Descriptor{Op: shm.OpFlush}, wire.Flush, wire.Flushed, 1 << 16, false},
		"unlocks": {shm.Descriptor{Op: shm.OpUnlock}, wire.Unlock, wire.Flushed, 1 << 16, false},
		"locks":   {shm.Descriptor{Op: shm.OpLock}, wire.Lock, wire.Locked, onesided.LockLimit, true},
		"to all":  {shm.Descriptor{Op: shm.OpFlush, Peer: shm.AnySource}, wire.Flush, wire.Flushed, many * 64, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := &crowd{lone: lone{regions: map[link.Region][]byte{}}, t: t, room: -1}
			var err error
			if x.core, err = New(Config{Self: 0, PodOf: []int32{0, 0, 1}, Pods: 2}, x); err != nil {
				t.Fatal(err)
			}
			c, p := x.core, &x.core.peers[1]
			c.ofRanks = ranks.NewAllowance(1<<40, 0) // this is of other bounds
			c.LinkUp(1, 1, link.Caps{Name: "test"})
			if err := c.Deliver(1, 1, &wire.Header{Type: wire.Ack, Credit: p.granted}, nil); err != nil {
				t.Fatal(err)
			}
			for rank := range uint32(many) {
				if err := c.Attach(1, SessionID(rank), rank, shm.FeaturesAll, link.Ref{}, link.Ref{}); err != nil {
					t.Fatal(err)
				}
				for req := range uint32(each) {
					d := ask.d
					if d.Req, d.Context = req, 9; d.Peer == 0 {
						d.Peer = many
					}
					x.submit(SessionID(rank), d)
				}
			}
			early, answered := x.done, 0
			if ask.ends != (early > 0) {
				t.Errorf("%d requests end at once", early)
			}
			for x.done < many*each {
				x.frames = x.frames[:0]
				for c.Flush(2, x) {
				}
				var asked []wire.Header
				for i := range x.frames {
					if h := x.frames[i].Head; h.Type == ask.kind {
						asked = append(asked, h)
					}
				}
				if len(asked) > ask.most {
					t.Fatalf("%d requests are not answered, want at most %d", len(asked), ask.most)
				}
				for _, h := range asked {
					answered++
					x.deliver(wire.Header{Type: ask.answer, A: h.A, Ack: h.Seq}, nil)
				}
				if len(asked) == 0 {
					t.Fatalf("%d of %d requests have ended, and no more is asked", x.done, many*each)
				}
			}
			if answered+early != many*each || c.onesided.Open().Asked != 0 {
				t.Errorf("%d asked and %d refused of %d; %d are said to be open", answered, early, many*each, c.onesided.Open().Asked)
			}
		})
	}
}

// TestCancelsAreWithinThePeersBounds: the same of sends that are cancelled, of which
// a pod may have open many times what its peer answers at once.
func TestCancelsAreWithinThePeersBounds(t *testing.T) {
	const ranks, each = 2, shm.MaxRequests - 1
	x := newCrowd(t)
	c, p := x.core, &x.core.peers[1]
	for rank := range SessionID(ranks) {
		for req := range uint32(each) {
			d := shm.Descriptor{Op: shm.OpSend, Req: req, Peer: 2, Class: shm.ClassArena}
			d.SetBody(0, 128<<10, 0, 0)
			x.submit(rank, d)
		}
		for req := range uint32(each) {
			x.submit(rank, shm.Descriptor{Op: shm.OpCancel, Req: req})
		}
	}
	for answered := 0; answered < ranks*each; {
		x.frames = x.frames[:0]
		for c.Flush(2, x) {
		}
		n := 0
		for i := range x.frames {
			h := &x.frames[i].Head
			if h.Type != wire.Retract {
				continue
			}
			if n++; n > retractWindow {
				t.Fatalf("%d cancels are not answered, want at most %d", n, retractWindow)
			}
		}
		asked := slices.Clone(x.frames)
		for i := range asked {
			if h := asked[i].Head; h.Type == wire.Retract {
				answered++
				x.deliver(wire.Header{Type: wire.Retracted, A: h.A, B: 1, Ack: h.Seq}, nil)
			}
		}
		if n == 0 {
			t.Fatalf("%d of %d cancels are answered, and no more are sent", answered, ranks*each)
		}
	}
	if x.done != ranks*each || p.retracts != 0 {
		t.Errorf("%d of %d sends have ended, %d cancels are said to be open", x.done, ranks*each, p.retracts)
	}
}

// TestFlushWaitsForGets: a flush means the gets before it, too. Its answer would
// overtake their data, which the target reads a fragment at a time, and after it the
// target may free the window (seed 500965 of the simulator).
func TestFlushWaitsForGets(t *testing.T) {
	x := newCrowd(t)
	get := shm.Descriptor{Op: shm.OpGet, Req: 1, Peer: 2, Context: 9, Class: shm.ClassArena}
	get.SetBody(0, 4096, 0, 0)
	x.submit(0, get)
	x.submit(0, shm.Descriptor{Op: shm.OpFlush, Req: 2, Peer: 2, Context: 9})
	sent := func(kind wire.Type) *wire.Header {
		for x.core.Flush(3, x) {
		}
		for i := range x.frames {
			if h := &x.frames[i].Head; h.Type == kind {
				return h
			}
		}
		return nil
	}
	asked := sent(wire.Get)
	if asked == nil || sent(wire.Flush) != nil {
		t.Fatal("a flush is sent before the get has ended")
	}
	x.deliver(wire.Header{Type: wire.Got, Dst: 0, Src: 2, A: asked.A, Length: 4096, Ack: asked.Seq}, make([]byte, 4096))
	if x.done != 1 || sent(wire.Flush) == nil {
		t.Errorf("%d of the gets have ended, and no flush is sent", x.done)
	}
}
