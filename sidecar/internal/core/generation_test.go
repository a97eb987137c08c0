package core

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/channel"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// repeated is a pod whose ranks attach several times, and its only peer.
type repeated struct {
	*statuses
	seen int // frames of the pod that a test has checked already
}

// newRepeated returns a repeated whose peer offers features in its greeting.
func newRepeated(t *testing.T, features uint64) *repeated {
	t.Helper()
	x := newStranger(t)
	r := &repeated{statuses: newStatuses(x)}
	x.core.LinkUp(1, 1, link.Caps{Name: "test"})
	if err := x.core.Deliver(1, 1, &wire.Header{Type: wire.Ack, A: features, Credit: x.core.peers[1].Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// again lets the sessions leaves detach, and all ranks of the pod attach again.
func (r *repeated) again(leaves ...SessionID) {
	r.t.Helper()
	for _, s := range leaves {
		r.submit(s, shm.Descriptor{Op: shm.OpDetach})
	}
	r.work()
	if !r.core.Renew(5) {
		r.t.Fatal("no generation begins")
	}
	r.attach()
}

func (r *repeated) attach() {
	r.t.Helper()
	for rank := range uint32(2) {
		base := RegionFirst + link.Region(2*rank)
		if err := r.core.Attach(5, SessionID(rank), rank, shm.FeaturesAll, link.Ref{Region: base, Len: 1 << 20}, link.Ref{Region: base + 1, Len: manyArena}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// work runs the pod until it has nothing to do, and delivers the frames to itself.
func (r *repeated) work() {
	c := r.core
	for i := 0; i < 20; i++ {
		for c.Flush(4, r) {
		}
		for c.Advance(4) > 0 {
		}
		if self := &c.peers[0]; self.State() == channel.Connecting {
			c.LinkUp(4, 0, link.Caps{Name: "local"})
		}
	}
}

// Post implements channel.Poster: frames to the pod itself are delivered at once.
func (r *repeated) Post(peer link.Peer, frames []*link.Frame) int {
	if peer != 0 {
		return r.lone.Post(peer, frames)
	}
	for _, f := range frames {
		if err := r.core.Deliver(4, 0, &f.Head, f.Inline[:f.Head.Length]); err != nil {
			r.t.Error(err)
		}
	}
	return len(frames)
}

// said returns the types of the frames that the peer has received since the last call.
func (r *repeated) said() (types []wire.Type) {
	r.work()
	for _, f := range r.frames[r.seen:] {
		if f.Head.Seq != 0 {
			types = append(types, f.Head.Type)
		}
	}
	r.seen = len(r.frames)
	return types
}

func (r *repeated) want(what string, types ...wire.Type) {
	r.t.Helper()
	if got := r.said(); !slices.Equal(got, types) {
		r.t.Errorf("%s: the peer had %v, want %v", what, got, types)
	}
}

func small(op shm.Op, peer, req uint32) shm.Descriptor {
	d := shm.Descriptor{Op: op, Req: req, Peer: peer, Class: shm.ClassInline, InlineLen: shm.InlineMax}
	if op == shm.OpSend {
		d.SetInline([]byte("second"))
	}
	return d
}

// TestGenerationsWaitForAPeerThatIsAway: a rank runs one program after the other while a peer
// is disconnected. The frames for that peer are bounded: the next generation begins only after
// the peer is connected again.
func TestGenerationsWaitForAPeerThatIsAway(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.work()
	r.core.LinkDown(4, 1, errors.New("broken"))
	out := r.core.peers[1].Out()
	begun := 0
	for ; begun < 1000; begun++ {
		for rank := range SessionID(2) {
			r.submit(rank, shm.Descriptor{Op: shm.OpDetach})
		}
		r.work()
		if !r.core.Renew(5) {
			break
		}
		r.attach()
	}
	if waiting := out.Last() - out.Base(); begun == 0 || waiting > 2*newsMax {
		t.Fatalf("%d generations have begun, and %d frames wait for the peer, want at most %d", begun, waiting, 2*newsMax)
	}
	r.core.LinkUp(5, 1, link.Caps{Name: "test"})
	for _, got := range []uint64{0, out.Last()} {
		if err := r.core.Deliver(5, 1, &wire.Header{Type: wire.Ack, A: wire.FeatureAgain, Ack: got, Credit: r.core.peers[1].Credit().Granted()}, nil); err != nil {
			t.Fatal(err)
		}
		r.work()
	}
	if !r.core.Renew(6) {
		t.Error("no generation begins when the peer is back")
	}
}

// TestHeldForARankThatIsBehind checks that messages to ranks that have not begun a generation
// wait, and are sent when the ranks have begun it.
func TestHeldForARankThatIsBehind(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.again(0, 1)
	r.want("the first programs are over", wire.Bye, wire.Again)
	r.submit(0, small(shm.OpSend, 2, 1))
	r.want("its receiver is in the first program")
	r.deliver(wire.Header{Type: wire.Again, Src: 2, Dst: 0, A: 1, B: 2}, nil)
	r.want("its receiver has come", wire.Eager)
}

// TestLateMessagesAreDropped checks that a message of an earlier generation reaches no rank,
// and that its credit is returned.
func TestLateMessagesAreDropped(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.again(0, 1)
	p := &r.core.peers[1]
	r.submit(0, small(shm.OpRecv, 2, 1))
	before := p.Credit().Grant()
	late := []byte("first!")
	r.deliver(wire.Header{Type: wire.Eager, Src: 2, Dst: 0, A: uint64(len(late)), Length: uint32(len(late))}, late)
	r.deliver(wire.Header{Type: wire.RTS, Src: 2, Dst: 0, A: 8, B: 5 << 32, Length: wire.RTSBytes}, make([]byte, wire.RTSBytes))
	if _, ended := r.got[0]; ended || r.core.Stats().Parked != 0 || p.Credit().Grant() == before {
		t.Errorf("a message of the first program: receive ended %v, %d kept, credit %d, want more than %d", ended, r.core.Stats().Parked, p.Credit().Grant(), before)
	}
	r.deliver(wire.Header{Type: wire.Again, Src: 2, Dst: 0, A: 1, B: 2}, nil)
	r.deliver(wire.Header{Type: wire.Eager, Src: 2, Dst: 0, A: uint64(len(late)), Length: uint32(len(late))}, late)
	if status, ended := r.got[0]; !ended || status != shm.StatusOK {
		t.Errorf("the message of the second program: ended %v, status %d", ended, status)
	}
}

// TestLeftBeforeThisPodHasCome: a peer reports that a rank has left its second program before
// this pod has begun it. When this pod begins the second program, the rank has left it.
func TestLeftBeforeThisPodHasCome(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.deliver(wire.Header{Type: wire.Again, Src: 2, Dst: 0, A: 1, B: 2}, nil)
	r.deliver(wire.Header{Type: wire.Left, Src: 2, Dst: 0, A: 1}, nil)
	r.again(0, 1)
	r.submit(0, small(shm.OpRecv, 2, 1))
	r.submit(1, small(shm.OpRecv, 3, 1))
	r.work()
	if status := r.got[0]; status != shm.StatusPeerLeft {
		t.Errorf("a receive from a rank that has left ended with status %d, want %d", status, shm.StatusPeerLeft)
	}
	if status, ended := r.got[1]; ended {
		t.Errorf("a receive from a rank that has not left ended with status %d", status)
	}
}

// TestGoodbyeToAPeerThatIsBehind checks that a goodbye does not wait for ranks that are in an
// earlier generation: otherwise its pod could not end.
func TestGoodbyeToAPeerThatIsBehind(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.again(0, 1)
	r.want("the first programs are over", wire.Bye, wire.Again)
	r.submit(0, shm.Descriptor{Op: shm.OpDetach})
	r.submit(1, shm.Descriptor{Op: shm.OpDetach})
	r.want("the second programs are over", wire.Bye)
}

// TestAbsentRanks: a rank whose process has ended has left all later generations. A peer that
// is in a later generation is notified of that by a pod whose ranks do not attach any more.
func TestAbsentRanks(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.submit(0, shm.Descriptor{Op: shm.OpDetach})
	r.submit(1, shm.Descriptor{Op: shm.OpDetach})
	r.want("the only programs are over", wire.Bye)
	r.deliver(wire.Header{Type: wire.Again, Src: 2, Dst: 0, A: 1, B: 2}, nil)
	r.core.Absent(4, 0)
	r.want("one rank may attach again")
	r.core.Absent(4, 1)
	r.want("no rank attaches again", wire.Again, wire.Bye)
}

// TestWaitsBetweenPrograms: a rank has left a program, and another pod waits for it in the
// next one. It has not left the job: otherwise a deadlock would be suspected before it
// attaches again.
func TestWaitsBetweenPrograms(t *testing.T) {
	r := newRepeated(t, wire.FeatureAgain)
	r.submit(0, shm.Descriptor{Op: shm.OpDetach})
	r.submit(1, shm.Descriptor{Op: shm.OpDetach})
	r.work()
	left := func() (n int) {
		for i := range 2 {
			if w := r.core.WaitsOf(i); w.Left {
				n++
			}
		}
		return n
	}
	if n := left(); n != 2 {
		t.Errorf("%d ranks have left, want 2", n)
	}
	if w := r.core.WaitsOf(0); w.Generation != 1 || !w.Returns {
		t.Errorf("generation %d, returns %v: want 1, and that it may", w.Generation, w.Returns)
	}
	r.deliver(wire.Header{Type: wire.Again, Src: 2, Dst: 0, A: 1, B: 2}, nil)
	if n := left(); n != 0 {
		t.Errorf("%d ranks have left that another pod waits for, want 0", n)
	}
	r.core.Absent(4, 0)
	if n := left(); n != 1 {
		t.Errorf("%d ranks have left when the process of one has ended, want 1", n)
	}
	if a, b := r.core.WaitsOf(0), r.core.WaitsOf(1); a.Returns || !b.Returns {
		t.Errorf("rank 0, whose process has ended, returns: %v; rank 1, whose process runs: %v", a.Returns, b.Returns)
	}
	again := newRepeated(t, wire.FeatureAgain)
	again.again(0, 1)
	if w := again.core.WaitsOf(0); w.Generation != 2 || w.Returns || !w.Attached {
		t.Errorf("attached again: %+v, want generation 2", w)
	}
}

// TestAgainWithAnEarlierRelease checks that a job fails if its ranks attach again and a peer
// is of an earlier release, with a reason that has both versions.
func TestAgainWithAnEarlierRelease(t *testing.T) {
	r := newRepeated(t, 0)
	r.again(0, 1)
	f := r.core.Failed()
	if f == nil || !strings.Contains(f.Reason, "pod 1 has protocol 2 without Again, this one 2 with it") {
		t.Errorf("the job's failure is %v", f)
	}
}

// TestAgainOutOfOrder checks that a generation that a peer reports out of order, or of another
// pod, is a violation.
func TestAgainOutOfOrder(t *testing.T) {
	for _, b := range []uint64{0, 1, generationMax + 1} {
		r := newRepeated(t, wire.FeatureAgain)
		h := wire.Header{Type: wire.Again, Seq: 1, Src: 2, Dst: 0, B: b}
		if err := r.core.Deliver(2, 1, &h, nil); !isProtocol(err) {
			t.Errorf("generation %d after 1: %v", b, err)
		}
	}
}
