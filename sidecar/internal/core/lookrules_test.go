package core

import (
	"errors"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/api/wire"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// lookAfter is the default of Limits.LookAfter.
const lookAfter = 64

// watched is a core with a ring that a peer fills, over a link that may refuse frames.
type watched struct {
	*lone
	t     *testing.T
	core  *Core
	caps  link.Caps
	first uint32 // notification of the first slot
	now   int64
	taken uint64
	full  bool
}

var looking64 = link.Caps{Name: "test", Register: true, Write: true, InOrder: true, Ordered: true, Notify: true}

func newWatched(t *testing.T, caps link.Caps) *watched {
	t.Helper()
	c, ports := ringed(t, caps)
	return &watched{lone: ports, t: t, core: c, caps: caps, first: ports.offered(t).Notice, now: 2}
}

func (w *watched) Post(peer link.Peer, frames []*link.Frame) int {
	if w.full {
		return 0
	}
	return w.lone.Post(peer, frames)
}

// turn runs a turn of an engine, and returns the Looks that it has posted.
func (w *watched) turn() (looks []uint64) {
	w.now++
	w.frames = w.frames[:0]
	w.core.Flush(w.now, w)
	w.core.PollMemory(w.now)
	w.core.Flush(w.now, w)
	for i := range w.frames {
		if h := &w.frames[i].Head; h.Type == wire.Look {
			looks = append(looks, h.A)
			if h.Ack != w.core.peers[1].Arrived() {
				w.t.Errorf("a look acknowledges frame %d, %d have come", h.Ack, w.core.peers[1].Arrived())
			}
		}
	}
	return looks
}

// write fills n slots, one in each turn, and returns the Looks that were posted meanwhile.
func (w *watched) write(n int) (looks []uint64) {
	for range n {
		w.taken++
		put(w.ring(), w.taken, w.taken, []byte("x"))
		if !w.caps.InOrder {
			slot := (w.taken - 1) % ringSlots
			if err := w.core.RemoteWritten(w.now, 1, uint64(w.first)+slot); err != nil {
				w.t.Fatal(err)
			}
		}
		looks = append(looks, w.turn()...)
	}
	return looks
}

// deliver delivers a frame without a number.
func (w *watched) deliver(h wire.Header, payload []byte) error {
	p := &w.core.peers[1]
	h.Credit, h.Ack = p.Credit().Granted(), p.Out().Base()
	return w.core.Deliver(w.now, 1, &h, payload)
}

// TestLooks: a side that has taken many frames without a sleep announces once that it polls
// its ring. It revokes that before it sleeps: PrepareSleep asks for another turn, which sends
// the revocation.
func TestLooks(t *testing.T) {
	w := newWatched(t, looking64)
	if looks := w.write(lookAfter - 1); len(looks) != 0 {
		t.Fatalf("%d frames, and it says %d", lookAfter-1, looks)
	}
	if w.core.PrepareSleep() {
		t.Fatal("there is nothing to take back")
	}
	if looks := w.write(lookAfter - 1); len(looks) != 0 {
		t.Fatalf("%d frames after a sleep, and it says %d", lookAfter-1, looks)
	}
	if looks := w.write(3 * lookAfter); len(looks) != 1 || looks[0] != 1 {
		t.Fatalf("after many frames it says %d, want 1, once", looks)
	}
	if !w.core.PrepareSleep() || !w.core.Pending() {
		t.Fatal("it may sleep, and has not said so")
	}
	if looks := w.turn(); len(looks) != 1 || looks[0] != 0 {
		t.Fatalf("before it sleeps it says %d", looks)
	}
	if w.core.PrepareSleep() || w.core.Pending() || w.core.Polled() {
		t.Error("it has said that it may sleep, and does not")
	}
	if looks := w.turn(); len(looks) != 0 {
		t.Errorf("it says %d again", looks)
	}
}

// TestLookWaitsForItsLink: a Look that the link refuses is sent later. Until the side has sent
// it, it must go on to poll, and sleeps only briefly.
func TestLookWaitsForItsLink(t *testing.T) {
	w := newWatched(t, looking64)
	w.write(lookAfter)
	w.core.PrepareSleep()
	w.full = true
	if w.turn(); w.core.PrepareSleep() || !w.core.Polled() {
		t.Fatal("the peer writes without notices, and this side sleeps")
	}
	w.full = false
	if looks := w.turn(); len(looks) != 1 || looks[0] != 0 || w.core.Polled() {
		t.Errorf("when there is room it says %d", looks)
	}
}

// TestLookAcknowledges checks that a Look acknowledges the frames that have arrived, so that
// no further acknowledgement follows.
func TestLookAcknowledges(t *testing.T) {
	w := newWatched(t, looking64)
	w.write(lookAfter)
	w.write(5)
	w.core.PrepareSleep()
	if looks := w.turn(); len(looks) != 1 {
		t.Fatalf("it says %d", looks)
	}
	w.now += int64(w.core.cfg.limits.AckDelay) + 1
	w.core.Tick(w.now)
	if w.turn(); len(w.frames) != 0 {
		t.Errorf("what a look has acknowledged is acknowledged by %v", w.frames[0].Head.Type)
	}
}

// TestWhoDoesNotLook checks that no Look is sent over a link that does not keep order, so that
// a Look could not cover earlier writes, or that never notifies of writes.
func TestWhoDoesNotLook(t *testing.T) {
	for name, caps := range map[string]link.Caps{
		"no order":  {Name: "test", Register: true, Write: true, Notify: true},
		"no notice": {Name: "test", Register: true, Write: true, InOrder: true},
	} {
		w := newWatched(t, caps)
		if looks := w.write(3 * lookAfter); len(looks) != 0 || w.core.PrepareSleep() {
			t.Errorf("%s: it says %d", name, looks)
		}
	}
}

// TestLooksOfStrangers: the argument of a peer's Look is 0 or 1, and any other is a violation.
// The Look 0, before a sleep, is answered only if the peer may have missed a write, and not on
// another connection.
func TestLooksOfStrangers(t *testing.T) {
	w := newWatched(t, looking64)
	offer := func() {
		t.Helper()
		b := make([]byte, wire.RingBytes)
		(&wire.RingBody{Key: 9, Slots: ringSlots, SlotBytes: ringSlot, Notice: 1}).Encode(b)
		if err := w.deliver(wire.Header{Type: wire.Ring, Length: wire.RingBytes}, b); err != nil {
			t.Fatal(err)
		}
	}
	send := func() *write {
		t.Helper()
		d := shm.Descriptor{Op: shm.OpSend, Flags: shm.FlagSilent, Peer: 1, Class: shm.ClassInline}
		d.SetInline([]byte("hello"))
		if err := w.core.Submit(w.now, 0, &d); err != nil {
			t.Fatal(err)
		}
		w.turn()
		return &w.writes[len(w.writes)-1]
	}
	look := func(a uint64) error { return w.deliver(wire.Header{Type: wire.Look, A: a}, nil) }
	offer()
	for range 100 { // nothing was written
		if err := errors.Join(look(1), look(0)); err != nil {
			t.Fatal(err)
		}
		if w.turn(); len(w.frames) > 0 {
			t.Fatalf("a look is answered with %v", w.frames[0].Head.Type)
		}
	}
	if x := send(); x.notify == 0 {
		t.Error("who may sleep is written to without a notice")
	} else {
		w.core.RemoteDone(w.now, 1, x.token, nil)
	}
	if err := errors.Join(look(1), look(0)); err != nil {
		t.Fatal(err)
	}
	if w.turn(); len(w.frames) > 0 {
		t.Errorf("what a notice has told of is told of by %v", w.frames[0].Head.Type)
	}
	if err := look(1); err != nil {
		t.Fatal(err)
	}
	x := send()
	if x.notify != 0 {
		t.Error("who looks is written to with a notice")
	}
	if err := look(0); err != nil {
		t.Fatal(err)
	}
	if w.turn(); len(w.frames) > 0 {
		t.Fatal("it is woken for a write that is under way")
	}
	w.core.RemoteDone(w.now, 1, x.token, nil)
	if w.turn(); len(w.frames) != 1 {
		t.Fatalf("it sleeps although frames were written, and gets %d frames", len(w.frames))
	}
	if w.turn(); len(w.frames) > 0 {
		t.Error("it is woken twice")
	}

	// The same, and the connection is lost while the write is under way.
	if err := look(1); err != nil {
		t.Fatal(err)
	}
	send()
	if err := look(0); err != nil {
		t.Fatal(err)
	}
	w.core.LinkDown(w.now, 1, link.ErrBroken)
	w.core.LinkUp(w.now, 1, looking64)
	w.turn()
	p := &w.core.peers[1]
	if err := w.core.Deliver(w.now, 1, &wire.Header{Type: wire.Ack, Ack: p.Out().Next(), Credit: p.Credit().Granted()}, nil); err != nil {
		t.Fatal(err)
	}
	w.turn()
	for _, f := range w.frames {
		if f.Head.Type != wire.Ring {
			t.Errorf("of a lost connection's ring a peer is told with %v", f.Head.Type)
		}
	}
	offer()
	if x := send(); x.notify == 0 {
		t.Error("the last connection's look is believed on the next one")
	}
	if err := look(2); !errors.Is(err, link.ErrProtocol) {
		t.Errorf("look 2 comes to %v", err)
	}
}
