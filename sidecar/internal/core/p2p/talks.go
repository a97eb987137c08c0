package p2p

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Talk is what a rank has sent to another.
type Talk struct {
	Dst uint32
	ranks.Traffic
}

// talksMax bounds the partners that a rank's traffic is told apart by. A job of
// ten thousands of ranks in which each has talked to each would need a gigabyte a
// pod for numbers that nobody can look at.
const talksMax = 4096

// talks is a row of the traffic matrix: whom a rank has really talked to. It is
// an open hash table, so that a message costs a look, and a new partner rarely
// more.
type talks struct {
	cells []Talk // power of two; Messages 0: free
	used  int
	rest  ranks.Traffic // to partners beyond talksMax
}

func (t *talks) add(dst uint32, n uint64) {
	if len(t.cells) == 0 {
		t.cells = make([]Talk, 8)
	}
	k := t.find(dst)
	if k.Messages == 0 {
		if t.used == talksMax {
			t.rest.Add(n)
			return
		}
		if t.used >= len(t.cells)*3/4 {
			t.grow()
			k = t.find(dst)
		}
		t.used++
		k.Dst = dst
	}
	k.Add(n)
}

// find returns the cell of dst, or the free one where it belongs.
func (t *talks) find(dst uint32) *Talk {
	mask := uint32(len(t.cells) - 1)
	i := dst * 0x9e3779b1 >> (32 - bits.Len32(mask))
	for ; t.cells[i].Messages != 0 && t.cells[i].Dst != dst; i = (i + 1) & mask {
	}
	return &t.cells[i]
}

func (t *talks) grow() {
	old := t.cells
	t.cells = make([]Talk, 2*len(old))
	for i := range old {
		if old[i].Messages != 0 {
			*t.find(old[i].Dst) = old[i]
		}
	}
}

// countSent counts a message of n bytes from src, which is hosted here, to dst.
func (tx *sender) countSent(src, dst uint32, n uint64) {
	s := &tx.stats
	s.Sizes[min(bits.Len64(n), len(s.Sizes)-1)]++
	if tx.endpoints[dst] != nil {
		s.Local.Add(n)
	} else {
		s.Remote.Add(n)
	}
	tx.endpoints[src].talks.add(dst, n)
}

// Talks appends the ranks that a rank of this sidecar has sent to, and returns what it has sent to
// others yet.
func (tx *sender) Talks(rank uint32, to []Talk) (all []Talk, rest ranks.Traffic) {
	t := &tx.endpoints[rank].talks
	for _, k := range t.cells {
		if k.Messages != 0 {
			to = append(to, k)
		}
	}
	return to, t.rest
}
