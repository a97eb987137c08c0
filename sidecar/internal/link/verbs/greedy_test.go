package verbs

import (
	"bytes"
	"errors"
	"testing"
)

// TestGreedyPeers: however many queue pairs for lent memory peers ask for, one that comes
// later has some. In a job of two pods there is nobody else to keep them for.
func TestGreedyPeers(t *testing.T) {
	for pods, want := range map[int][]int{2: {lanesMax}, 3: {lanesMax / 2, lanesMax / 4}, 9: {128, 64, 32, 16, 8, 4, 2, 1}} {
		b := lenders(t)[1]
		b.cfg.Peers = pods
		d, err := b.side()
		if err != nil {
			t.Fatal(err)
		}
		for i, most := range want {
			c := &conn{l: b.Link, lanesOf: lanesOf{asked: map[uint32]*lane{}, answered: map[uint32]*lane{}}}
			var err error
			for n := 0; err == nil && n <= lanesMax; n++ {
				err = (&lane{c: c, d: d}).create()
			}
			if c.lanes != most || !errors.Is(err, errLanes) {
				t.Errorf("%d pods: peer %d has %d queue pairs, want %d: %v", pods, i, c.lanes, most, err)
			}
		}
	}
}

// TestUnanswered: a queue pair that a peer does not answer for keeps its place for a while
// only, and the next message asks for another one.
func TestUnanswered(t *testing.T) {
	all := lenders(t)
	a, b := all[0], all[1]
	r, _ := b.ref(true, 0, 4096)
	k, err := b.Register(r)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := a.ref(false, 0, 4096)
	if err := a.Read(0, 1, d, k); !errors.Is(err, errNotYet) {
		t.Fatal(err)
	}
	ln := only(t, a.conns[0].asked)
	a.watch.look = true
	if a.Poll(a); ln.over {
		t.Fatal("it is given up at once")
	}
	ln.since = ln.since.Add(-laneSilence)
	a.watch.look = true
	if a.Poll(a); !ln.over || a.lending.lanes != 0 || a.lending.unanswered != 0 {
		t.Errorf("it is given up: %v; %d queue pairs are left, %d unanswered", ln.over, a.lending.lanes, a.lending.unanswered)
	}
	a.pass(b) // which answers after all
	if b.lending.lanes != 0 || a.lending.lanes != 0 || len(a.lending.pasts[0].fails) != 1 {
		t.Errorf("%d and %d queue pairs are left, %d failures are noted", a.lending.lanes, b.lending.lanes, len(a.lending.pasts[0].fails))
	}
	dst, src, err := a.read(t, b, 2, false, true)
	if err != nil || !bytes.Equal(dst, src) || a.lending.unanswered != 0 {
		t.Errorf("another one: %v, %d unanswered, or the bytes are not there", err, a.lending.unanswered)
	}
}
