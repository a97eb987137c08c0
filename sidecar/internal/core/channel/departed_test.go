package channel

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// leave notes at pod 0 that all ranks of a pod have left.
func (j *job) leave(from int) {
	j.t.Helper()
	r := j.pods[0].r
	r.SetDeparted(r.Peer(link.Peer(from)), true)
	j.carry()
}

// TestDepartedPeerGivesItsWindowBack checks that others can use the window of a peer that has left,
// that what its waiting messages use follows when they are received, and that the peer can widen its
// window again if its ranks come back.
func TestDepartedPeerGivesItsWindowBack(t *testing.T) {
	j := newJob(t, 5)
	r := j.pods[0].r
	for from := 1; from <= 3; from++ {
		j.fill(from)
	}
	if r.windows.left != 0 || j.window(1) != testWidest {
		t.Fatalf("%d units of the budget are left, pod 1 has %d bytes", r.windows.left, j.window(1))
	}
	j.receive(1)
	j.leave(1)
	if j.window(1) != testFirst || uint64(r.windows.left)*wire.CreditUnit != testWidest-testFirst {
		t.Errorf("a peer without messages keeps %d bytes, and %d units of the budget are left", j.window(1), r.windows.left)
	}
	j.check()

	wide := j.window(2)
	j.leave(2)
	if j.window(2) != wide {
		t.Errorf("the messages of a peer that has left use %d bytes of a window of %d", wide, j.window(2))
	}
	asked, grant := r.Stats().Asked, r.Peer(2).Credit().Grant()
	j.receive(2)
	if j.window(2) != testFirst || r.Stats().Asked != asked {
		t.Errorf("when they are received it has %d bytes, and was asked %d times", j.window(2), r.Stats().Asked-asked)
	}
	if again := uint64(r.Peer(2).Credit().Grant()-grant) * wire.CreditUnit; again != testFirst {
		t.Errorf("%d bytes are granted again, want %d", again, testFirst)
	}
	j.check()
	if j.fill(4); j.window(4) != testWidest {
		t.Errorf("another peer has a window of %d", j.window(4))
	}
	j.receive(4)
	j.check()

	r.SetDeparted(r.Peer(2), false)
	if sum := j.fill(2); sum <= testFirst {
		t.Errorf("a peer that has come back can send %d bytes", sum)
	}
	j.receive(2)
	j.check()
}

// TestDepartedPeerIsAskedWhenItCan checks that a peer is not asked while there is no connection, is
// asked on the next one, and is asked for the rest if it was asked for less before it left.
func TestDepartedPeerIsAskedWhenItCan(t *testing.T) {
	j := newJob(t, 3)
	j.fill(1)
	j.receive(1)
	r, x := j.pods[0].r, j.pods[1].r
	r.LinkDown(j.now, 1, link.ErrBroken)
	x.LinkDown(j.now, 0, link.ErrBroken)
	last := r.Peer(1).Out().Last()
	j.leave(1)
	if r.Peer(1).Out().Last() != last || j.window(1) != testWidest {
		t.Errorf("%d frames to a peer without a connection, whose window is %d", r.Peer(1).Out().Last()-last, j.window(1))
	}
	r.LinkUp(j.now, 1, link.Caps{})
	x.LinkUp(j.now, 0, link.Caps{})
	j.carry() // greetings
	if j.carry(); j.window(1) != testFirst {
		t.Errorf("on the next connection its window is %d, want %d", j.window(1), testFirst)
	}
	j.check()

	j.fill(2)
	j.receive(2)
	r.now = j.now
	r.ask(r.Peer(2), 64)
	if j.leave(2); j.window(2) != testFirst || r.Peer(2).credit.asked != 0 {
		t.Errorf("a peer that was asked before it left has a window of %d", j.window(2))
	}
	j.check()
}

// TestDepartedPeerThatWasAsked checks that the credit which a peer was asked for is not kept from its
// messages, too: its window never becomes smaller than the first one.
func TestDepartedPeerThatWasAsked(t *testing.T) {
	j := newJob(t, 2)
	j.fill(1)
	kept := j.pods[0].kept[1]
	r, p := j.pods[0].r, j.pods[0].r.Peer(1)
	for _, n := range kept[:len(kept)/2] {
		r.Consumed(p, n)
	}
	j.pods[0].kept[1] = kept[len(kept)/2:]
	j.carry()
	r.SetDeparted(p, true) // a Yield is on its way
	if p.credit.asked == 0 {
		t.Fatal("nothing is asked for")
	}
	for _, n := range j.pods[0].kept[1] {
		r.Consumed(p, n)
	}
	j.pods[0].kept[1] = nil
	if j.carry(); j.window(1) != testFirst {
		t.Errorf("a window of %d, want %d", j.window(1), testFirst)
	}
	j.check()
}

// TestEarlierReleaseKeepsItsWindow checks that a departed peer without Yield is not asked, and its
// credit is granted again.
func TestEarlierReleaseKeepsItsWindow(t *testing.T) {
	j := newJob(t, 2, 0)
	j.fill(1)
	j.leave(1)
	if j.receive(1); j.window(1) != testWidest || j.pods[0].r.Stats().Asked != 0 {
		t.Errorf("a window of %d, asked %d times", j.window(1), j.pods[0].r.Stats().Asked)
	}
	j.check()
}

// TestDepartedPeerDiesBeforeItAnswers checks that a peer that dies with a Yield unanswered is not asked
// any more: its messages that are received later give back what they use, and no more.
func TestDepartedPeerDiesBeforeItAnswers(t *testing.T) {
	j := newJob(t, 2)
	j.fill(1)
	r, p := j.pods[0].r, j.pods[0].r.Peer(1)
	kept := j.pods[0].kept[1]
	for _, n := range kept[:len(kept)/2] {
		r.Consumed(p, n)
	}
	j.pods[0].kept[1] = kept[len(kept)/2:]
	r.SetDeparted(p, true)
	if p.credit.asked == 0 {
		t.Fatal("nothing is asked for")
	}
	r.Bury(p)
	for _, n := range j.pods[0].kept[1] {
		r.Consumed(p, n)
	}
	if j.window(1) != testFirst || r.windows.left != int64(r.windows.budget) {
		t.Errorf("a window of %d, want %d, and %d units of the budget are left, want %d", j.window(1), testFirst, r.windows.left, r.windows.budget)
	}
}
