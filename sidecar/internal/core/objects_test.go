package core

import (
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// objects lets the rank of a keeper make n windows and communicators and shut n contexts. The rank of
// the peer accesses each window.
func objects(t *testing.T, c *Core, n uint32) (submit func(d shm.Descriptor)) {
	t.Helper()
	submit = func(d shm.Descriptor) {
		t.Helper()
		if err := c.Submit(2, 0, &d); err != nil {
			t.Fatal(err)
		}
	}
	for context := uint32(1); context <= n; context++ {
		submit(shm.Descriptor{Op: shm.OpWin, Class: shm.ClassNone, Context: context})
		submit(shm.Descriptor{Op: shm.OpComm, Context: context})
		submit(shm.Descriptor{Op: shm.OpShut, Context: context})
		submit(shm.Descriptor{Op: shm.OpShut, Context: context})
		h := wire.Header{Type: wire.Expose, Src: 1, Context: context, A: uint64(context), Seq: c.peers[1].Arrived() + 1}
		if err := c.Deliver(2, 1, &h, nil); err != nil {
			t.Fatal(err)
		}
		if context%64 == 0 || context == n {
			new(announced).settle(t, c, 1)
		}
	}
	return submit
}

// TestWindowsCommunicatorsAndContextsAreCounted: what a rank makes counts for it, at least with the
// memory that it takes, until it frees it or leaves.
func TestWindowsCommunicatorsAndContextsAreCounted(t *testing.T) {
	const n, each = 2000, memory.WindowCost + memory.CommCost + memory.ShutCost
	c := keeper(t, 1)
	before := inUse()
	submit := objects(t, c, n)
	if got := c.ofRanks.Used(); got != n*each+memory.NumberCost {
		t.Errorf("%d bytes are accounted, want %d", got, n*each+memory.NumberCost)
	}
	if kept := inUse() - before; kept > c.ofRanks.Used() {
		t.Errorf("%d bytes are kept, %d are accounted", kept, c.ofRanks.Used())
	}
	x := &collect{}
	for context := uint32(1); context <= n; context++ {
		submit(shm.Descriptor{Op: shm.OpWinFree, Context: context, Req: context})
		submit(shm.Descriptor{Op: shm.OpCommFree, Context: context})
	}
	for c.Flush(2, x) {
	}
	for _, view := range x.views { // the peer accesses the window no more
		h := wire.Header{Type: wire.Concealed, A: view, Seq: c.peers[1].Arrived() + 1}
		if err := c.Deliver(2, 1, &h, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := c.ofRanks.Used(), int64(n*memory.ShutCost+(n+1)*memory.NumberCost); got != want {
		t.Errorf("%d bytes are accounted when all are free, want %d", got, want)
	}
	submit(shm.Descriptor{Op: shm.OpDetach})
	for c.Advance(3) > 0 {
	}
	if got := c.ofRanks.Used(); got != 0 || c.sessions[0] != nil || c.p2p.Stats().Shut != 0 {
		t.Errorf("%d bytes are accounted when the rank has left", got)
	}
}

// collect is a link that keeps what its Conceal frames name.
type collect struct{ views []uint64 }

func (x *collect) Post(_ link.Peer, frames []*link.Frame) int {
	for _, f := range frames {
		if f.Head.Type == wire.Conceal {
			x.views = append(x.views, f.Head.B)
		}
	}
	return len(frames)
}

// TestObjectsOfARankThatLeaves: a rank that leaves or dies gives back what its windows, communicators
// and shut contexts are charged, once.
func TestObjectsOfARankThatLeaves(t *testing.T) {
	for name, end := range map[string]func(c *Core, submit func(d shm.Descriptor)){
		"leaves": func(_ *Core, submit func(d shm.Descriptor)) { submit(shm.Descriptor{Op: shm.OpDetach}) },
		"dies":   func(c *Core, _ func(d shm.Descriptor)) { c.Detach(3, 0, errGone) },
		"leaves while a window is freed": func(_ *Core, submit func(d shm.Descriptor)) {
			submit(shm.Descriptor{Op: shm.OpWinFree, Context: 3})
			submit(shm.Descriptor{Op: shm.OpDetach})
		},
	} {
		c := keeper(t, 1)
		submit := objects(t, c, 10)
		end(c, submit)
		x := &collect{}
		for c.Advance(3) > 0 || c.Flush(3, x) {
		}
		for _, view := range x.views {
			h := wire.Header{Type: wire.Concealed, A: view, Seq: c.peers[1].Arrived() + 1}
			if err := c.Deliver(3, 1, &h, nil); err != nil {
				t.Fatal(err)
			}
		}
		for c.Advance(4) > 0 {
		}
		if got := c.ofRanks.Used(); got != 0 || c.sessions[0] != nil {
			t.Errorf("%s: %d bytes are accounted, or its session is not gone", name, got)
		}
	}
}

// TestTooManyObjectsAreNoFault: a window or communicator for which there is no memory ends with that
// status, and its rank stays.
func TestTooManyObjectsAreNoFault(t *testing.T) {
	x := newCrowd(t)
	var got []shm.Status
	x.ended = func(_ SessionID, d *shm.Descriptor) { got = append(got, d.Status) }
	x.submit(0, shm.Descriptor{Op: shm.OpWin, Context: 1})
	most := x.core.ofRanks.Most()
	x.core.sessions[0].Keep(most - x.core.ofRanks.Used() - memory.RequestCost) // a request fits, and nothing in addition
	x.submit(0, shm.Descriptor{Op: shm.OpWin, Context: 2})
	x.submit(0, shm.Descriptor{Op: shm.OpComm, Context: 1})
	x.submit(0, shm.Descriptor{Op: shm.OpComm, Context: 1}) // the number is free
	want := []shm.Status{shm.StatusOK, shm.StatusNoMemory, shm.StatusNoMemory, shm.StatusNoMemory}
	if !slices.Equal(got, want) || x.core.ofRanks.Used() != most-memory.RequestCost {
		t.Errorf("statuses %v, want %v; %d bytes of %d are accounted", got, want, x.core.ofRanks.Used(), most)
	}
}
