package verbs

import (
	"bytes"
	"errors"
	"testing"
)

// TestGreedyPeers checks that however many queue pairs for lent memory peers ask for, a
// later peer gets some. In a job of two pods there is no other peer to reserve them for.
func TestGreedyPeers(t *testing.T) {
	for pods, want := range map[int][]int{2: {lentQPsMax}, 3: {lentQPsMax / 2, lentQPsMax / 4}, 9: {128, 64, 32, 16, 8, 4, 2, 1}} {
		b := lenders(t)[1]
		b.cfg.Peers = pods
		d, err := b.ownDomain()
		if err != nil {
			t.Fatal(err)
		}
		for i, most := range want {
			c := &conn{l: b.Link, lentQueues: lentQueues{asked: map[uint32]*lentQP{}, answered: map[uint32]*lentQP{}}}
			var err error
			for n := 0; err == nil && n <= lentQPsMax; n++ {
				err = (&lentQP{c: c, d: d}).create()
			}
			if c.lentQPs != most || !errors.Is(err, errLentQPs) {
				t.Errorf("%d pods: peer %d has %d queue pairs, want %d: %v", pods, i, c.lentQPs, most, err)
			}
		}
	}
}

// TestUnanswered checks that a queue pair that a peer does not answer counts for a
// bounded time only, and that the next message asks for another one.
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
	q := only(t, a.conns[0].asked)
	a.watch.check = true
	if a.Poll(a); q.over {
		t.Fatal("it is ended at once")
	}
	q.since = q.since.Add(-silenceMax)
	a.watch.check = true
	if a.Poll(a); !q.over || a.lending.lentQPs != 0 || a.lending.unanswered != 0 {
		t.Errorf("it is over: %v; %d queue pairs are left, %d unanswered", q.over, a.lending.lentQPs, a.lending.unanswered)
	}
	a.pass(b) // b answers after all
	if b.lending.lentQPs != 0 || a.lending.lentQPs != 0 || len(a.lending.histories[0].fails) != 1 {
		t.Errorf("%d and %d queue pairs are left, %d failures are noted", a.lending.lentQPs, b.lending.lentQPs, len(a.lending.histories[0].fails))
	}
	dst, src, err := a.read(t, b, 2, false, true)
	if err != nil || !bytes.Equal(dst, src) || a.lending.unanswered != 0 {
		t.Errorf("another one: %v, %d unanswered, or the bytes are not there", err, a.lending.unanswered)
	}
}
