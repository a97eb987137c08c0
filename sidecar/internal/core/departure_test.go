package core

import (
	"testing"
	"time"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/rendezvous"
)

// TestNoLockForWhoHasLeft checks that a rank that leaves while it waits for a lock does not
// get it.
func TestNoLockForWhoHasLeft(t *testing.T) {
	s := exposing(t)
	s.ask(wire.Lock, 1, 11, 1) // rank 1 holds the lock
	s.ask(wire.Lock, 2, 21, 1) // rank 2 waits for it, and leaves
	s.seq++
	if err := s.core.Deliver(2, 1, &wire.Header{Type: wire.Left, Seq: s.seq, Src: 2}, nil); err != nil {
		t.Fatal(err)
	}
	for s.core.Advance(3) > 0 {
	}
	s.ask(wire.Unlock, 1, 12, 0)
	a := s.ask(wire.Lock, 1, 13, 1)
	if len(a) != 1 || a[0].Type != wire.Locked {
		t.Errorf("the lock belongs to a rank that has left: %v", a)
	}
}

// TestRequestsAtAPeerThatEndsAfterBye checks that the sidecar reconnects to a peer that ends
// after its goodbye while it still owes something, and gives it up: no request waits for it
// for ever.
func TestRequestsAtAPeerThatEndsAfterBye(t *testing.T) {
	for _, what := range []string{"send", "recv", "get"} {
		x := newCrowd(t)
		c := x.core
		switch what {
		case "send":
			x.submit(0, arena(shm.OpSend, 2, 1, 1<<20))
		case "get":
			x.submit(0, arena(shm.OpGet, 2, 1, 1<<10))
		case "recv":
			x.submit(0, arena(shm.OpRecv, 2, 1, 1<<10))
			var raw [wire.RTSBytes]byte
			x.deliver(wire.Header{Type: wire.RTS, A: 8, B: 5 << 32, Context: 9, Src: 2, Length: wire.RTSBytes}, raw[:])
		}
		for c.Flush(2, x) {
		}
		x.deliver(wire.Header{Type: wire.Bye, Src: 2, Ack: c.peers[1].Out().Last()}, nil)
		for c.Advance(3) > 0 {
		}
		c.LinkDown(4, 1, link.ErrBroken) // the pod is killed
		for now := time.Duration(0); now < 30*time.Second; now += 10 * time.Millisecond {
			c.Tick(int64(now) + 5)
			for c.Advance(int64(now)+5) > 0 {
			}
		}
		if x.done == 0 {
			t.Errorf("%s: open for ever; peer state %d, failed %v", what, c.peers[1].State(), c.fail)
		}
	}
}

// TestSyncSenderOfAnArrivingMessage checks that a synchronous sender is notified when its
// receiver leaves while the payload is still arriving.
func TestSyncSenderOfAnArrivingMessage(t *testing.T) {
	x := newCrowd(t)
	c := x.core
	d := arena(shm.OpRecv, 2, 1, 8192)
	d.Class = shm.ClassStaged
	x.submit(0, d)
	h := wire.Header{Type: wire.Eager, Seq: 1, Src: 2, Context: 9, Flags: wire.FlagSync, A: 8192, B: 77 << 32, Length: 8192}
	if _, err := c.Place(2, 1, &h); err != nil {
		t.Fatal(err)
	}
	x.submit(0, shm.Descriptor{Op: shm.OpDetach})
	for c.Advance(3) > 0 {
	}
	if err := c.Placed(3, 1); err != nil {
		t.Fatal(err)
	}
	for c.Flush(3, x) {
	}
	for _, f := range x.frames {
		if f.Head.Type == wire.Matched {
			return
		}
	}
	t.Error("the synchronous sender is never told")
}

type statuses struct {
	*manyPeers
	got map[SessionID]shm.Status
}

func newStatuses(x *manyPeers) *statuses {
	s := &statuses{x, map[SessionID]shm.Status{}}
	x.ended = func(id SessionID, d *shm.Descriptor) {
		if d.Op == shm.OpDone {
			s.got[id] = d.Status
		}
	}
	return s
}

// TestCollectiveEndsWithItsFirstFailedStep checks that a collective ends when a step fails at
// once. If it went on, other ranks would receive bytes that the root never sent.
func TestCollectiveEndsWithItsFirstFailedStep(t *testing.T) {
	x := newCrowd(t)
	s := newStatuses(x)
	c := x.core
	x.deliver(wire.Header{Type: wire.Left, Src: 2}, nil) // the root has left
	for c.Advance(3) > 0 {
	}
	for _, rank := range []SessionID{1, 0} {
		b := shm.CollBlock{Kind: shm.CollBcast, Type: shm.TypeUint8, Root: 2, Count: 64, Elem: 1, Out: 0, OutBytes: 64, In: 0, InBytes: 64, Scratch: 4096, ScratchBytes: 4096}
		b.Encode(x.lone.Bytes(link.Ref{Region: RegionFirst + link.Region(2*rank), Len: shm.CollBlockBytes}))
		d := shm.Descriptor{Op: shm.OpColl, Req: 2, Class: shm.ClassSlab}
		d.SetBody(0, shm.CollBlockBytes, 0, 0)
		x.submit(rank, d)
	}
	c.LinkUp(3, 0, link.Caps{}) // the connection of the sidecar to itself
	for range 20 {
		n := len(x.frames)
		for c.Flush(3, x) {
		}
		for _, f := range x.frames[n:] {
			h := f.Head
			if h.Dst < 2 && h.Seq != 0 {
				if err := c.Deliver(3, 0, &h, make([]byte, h.Length)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if s.got[0] != shm.StatusPeerLeft {
		t.Errorf("rank 0 ends with status %d", s.got[0])
	}
	if status, over := s.got[1]; over && status == shm.StatusOK {
		t.Error("rank 1 has a broadcast whose root never sent one")
	}
}

// TestOrphanOfADeniedPeer checks that requests that wait for a rejected peer end with it.
func TestOrphanOfADeniedPeer(t *testing.T) {
	x := newCrowd(t)
	c := x.core
	d := shm.Descriptor{Op: shm.OpSend, Peer: 2, Flags: shm.FlagSilent}
	d.SetInline([]byte("farewell"))
	for range 4096 + 1 {
		x.submit(0, d)
	}
	x.submit(0, shm.Descriptor{Op: shm.OpDetach})
	x.submit(1, shm.Descriptor{Op: shm.OpDetach})
	for c.Advance(3) > 0 {
	}
	for c.Flush(3, x) {
	}
	if l := c.Leftover(); l.Sends != 1 {
		t.Fatal(l)
	}
	c.Tick(4e9)                   // the peer is dead, after this turn's Advance
	c.LinkUp(4e9, 1, link.Caps{}) // an event of the next turn
	for c.Advance(21e9) > 0 {
	}
	c.LinkDown(22e9, 1, link.ErrBroken)
	for now := int64(22e9); now < 30e9; now += 1e6 {
		c.Tick(now)
		for c.Advance(now) > 0 {
		}
	}
	if l := c.Leftover(); l.Sends != 0 {
		t.Errorf("state %d, %d orphans for ever", c.peers[1].State(), l.Sends)
	}
}

// TestRetract checks that announced messages can be retracted in any order, each by its
// number, and that no memory of them is left.
func TestRetract(t *testing.T) {
	x := newCrowd(t)
	const n = 1000
	var raw [wire.RTSBytes]byte
	for i := range uint64(n) {
		x.deliver(wire.Header{Type: wire.RTS, A: 8, B: i + 1, Context: 9, Src: 2, Length: wire.RTSBytes}, raw[:])
	}
	for i := range uint64(n) {
		x.deliver(wire.Header{Type: wire.Retract, A: n - i, Src: 2}, nil)
	}
	x.deliver(wire.Header{Type: wire.Retract, A: 1, Src: 2}, nil) // too late: it was retracted already
	for x.core.Flush(3, x) {
	}
	taken, late := 0, 0
	for _, f := range x.frames {
		switch {
		case f.Head.Type != wire.Retracted:
		case f.Head.B == 1:
			taken++
		default:
			late++
		}
	}
	c := x.core
	if err := acknowledge(c, &c.peers[1], c.peers[1].Out().Last()); err != nil {
		t.Fatal(err)
	}
	if taken != n || late != 1 || c.Stats().Parked != 0 || c.p2p.Stats().Retractable != 0 || c.ofPeers.Used() != 0 {
		t.Errorf("%d taken back, %d too late; %d parked, %d names, %d bytes are left", taken, late, c.Stats().Parked, c.p2p.Stats().Retractable, c.ofPeers.Used())
	}
}

// asked returns a core whose rank exposes windows that other pods have asked for.
func asked(t *testing.T, holders, windows int) *Core {
	t.Helper()
	podOf := make([]int32, 1+holders)
	for i := range podOf {
		podOf[i] = int32(i)
	}
	ports := &lone{regions: map[link.Region][]byte{}}
	c, err := New(Config{PodOf: podOf, Pods: len(podOf)}, ports)
	if err == nil {
		err = c.Attach(1, 0, 0, shm.FeaturesAll, link.Ref{Region: RegionFirst, Len: 1 << 20}, link.Ref{Region: RegionFirst + 1, Len: 1 << 20})
	}
	for w := uint32(1); w <= uint32(windows) && err == nil; w++ {
		d := shm.Descriptor{Op: shm.OpWin, Class: shm.ClassArena, Req: w, Context: w}
		d.SetBody(0, 4096, 0, 0)
		err = c.Submit(1, 0, &d)
	}
	for p := link.Peer(1); int(p) <= holders && err == nil; p++ {
		c.LinkUp(1, p, link.Caps{Name: "test", Register: true, Write: true})
		err = c.Deliver(1, p, &wire.Header{Type: wire.Ack, Credit: c.peers[p].Credit().Granted()}, nil)
		for w := uint32(1); w <= uint32(windows) && err == nil; w++ {
			err = c.Deliver(1, p, &wire.Header{Type: wire.Expose, Seq: uint64(w), Context: w, Src: uint32(p), A: uint64(w)}, nil)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWindowsEndInSteps: a rank leaves whose windows are accessed from hundreds of pods. Each
// pod is notified of the end of each window, a bounded number of them in one step.
func TestWindowsEndInSteps(t *testing.T) {
	const holders, windows = 300, 20
	c := asked(t, holders, windows)
	emitted := func() (n int) {
		for i := range c.peers {
			n += int(c.peers[i].Out().Last())
		}
		return n
	}
	before := emitted()
	c.Detach(2, 0, nil)
	if n := emitted() - before; n > advanceItems+holders {
		t.Errorf("%d frames in one step, want at most %d", n, advanceItems+holders)
	}
	for c.Advance(3) > 0 {
	}
	if n := emitted() - before; n < holders*windows {
		t.Errorf("%d frames, want one of each of %d windows to %d pods", n, windows, holders)
	}
}

// TestHoldersLeaveInSteps: a pod is lost that accessed thousands of windows. It is removed
// from the windows' holders, a bounded number of them in one step.
func TestHoldersLeaveInSteps(t *testing.T) {
	for _, x := range []struct{ holders, windows int }{{2, 3000}, {200, 150}} {
		c := asked(t, x.holders, x.windows)
		known := func() int { return c.onesided.Open().Holders }
		c.LinkDown(2, 1, link.ErrProtocol)
		for before := known(); c.Advance(3) > 0; before = known() {
			if n := before - known(); n > advanceItems {
				t.Errorf("%d pods, %d windows: %d were forgotten in one step, want at most %d", x.holders, x.windows, n, advanceItems)
			}
		}
		if n, want := known(), (x.holders-1)*x.windows; n != want {
			t.Errorf("%d pods, %d windows: %d holders are left, want %d", x.holders, x.windows, n, want)
		}
	}
}

// TestAbortOfTheDeserted: if the MPI of a rank aborts at once because a message had no
// receiver any more, the failure names the rank that has left. A later abort names the rank
// that aborts.
func TestAbortOfTheDeserted(t *testing.T) {
	for _, c := range []struct {
		after int64
		blame uint32
		text  string
	}{
		{1, 1, podlife.TextAbsent + "0" + podlife.TextAbsentFrom + "a message of MPI"},
		{abortsAfter + 1, 0, podlife.TextAborted},
	} {
		d := newDuo(t, rendezvous.Get, link.Caps{Register: true, Read: true, Write: true, InOrder: true})
		d.submit(1, shm.Descriptor{Op: shm.OpDetach})
		d.run()
		d.submit(0, duoMessage(shm.OpSend, 3, 1, 0))
		d.run()
		if _, status := d.last(0); status != shm.StatusPeerLeft {
			t.Fatalf("the send has ended with %v", status)
		}
		d.cores[0].Aborted(d.now+c.after, 0, 15)
		if f := d.cores[0].Failed(); f == nil || f.Rank != c.blame || f.Code != 15 || f.Reason != c.text {
			t.Errorf("%d ns later: %v", c.after, f)
		}
	}
}

// TestLocksOfWhoHasLeft checks that the locks of a rank that leaves end however many windows
// there are, a bounded number in one Advance, also if windows are freed meanwhile.
func TestLocksOfWhoHasLeft(t *testing.T) {
	const windows = 4096 - 1
	x := newCrowd(t)
	for rank := range SessionID(2) {
		for i := range uint32(windows) {
			x.submit(rank, shm.Descriptor{Op: shm.OpWin, Req: 1, Context: 100 + i})
		}
	}
	for dst := range uint32(2) {
		for i := range uint64(windows) {
			x.deliver(wire.Header{Type: wire.Lock, Context: 100 + uint32(i), Src: 2, Dst: dst, A: 1, B: i % 2}, nil)
			x.deliver(wire.Header{Type: wire.Lock, Context: 100 + uint32(i), Src: 3, Dst: dst, A: 2, B: 1}, nil)
		}
	}
	granted := func() (n int) {
		x.frames = x.frames[:0]
		for x.core.Flush(2, x) {
		}
		for i := range x.frames {
			if x.frames[i].Head.Type == wire.Locked {
				n++
			}
		}
		return n
	}
	if n := granted(); n != 2*windows {
		t.Fatalf("%d locks of %d are granted", n, 2*windows)
	}
	x.deliver(wire.Header{Type: wire.Left, Src: 2}, nil)
	all, freed := 0, uint32(0)
	for x.core.Advance(3) > 0 {
		n := granted()
		if all += n; n > advanceItems+1 {
			t.Errorf("%d locks end in one step", n)
		}
		if freed < 5 { // the windows that were locked first
			x.submit(0, shm.Descriptor{Op: shm.OpWinFree, Req: 1, Context: 100 + freed})
			freed++
		}
	}
	if all < 2*windows-int(freed) || all > 2*windows {
		t.Errorf("%d locks are granted to who waited, %d windows are left", all, 2*windows-freed)
	}
}
