package verbs

import (
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
			c := &conn{l: b.Link, asked: map[uint32]*lane{}, answered: map[uint32]*lane{}}
			n := 0
			for ; err == nil && n <= lanesMax; n++ {
				c.answered[uint32(n)], err = c.newLane(d, uint32(n), mayRead)
			}
			if delete(c.answered, uint32(n-1)); len(c.answered) != most || !errors.Is(err, errLanes) {
				t.Errorf("%d pods: peer %d has %d queue pairs, want %d: %v", pods, i, len(c.answered), most, err)
			}
			err = nil
		}
	}
}
