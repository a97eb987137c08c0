package p2p

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// Talk is the traffic from a rank to another.
type Talk struct {
	Dst uint32
	ranks.Traffic
}

// partnersMax bounds the partners for which a rank's traffic is counted separately. A job of ten
// thousands of ranks, each with traffic to each, would need a gigabyte in each pod.
const partnersMax = 4096

// traffic is a row of the traffic matrix: the ranks that a rank has sent to. It is an open hash
// table, so that a message costs one lookup.
type traffic struct {
	cells []Talk // power of two; Messages 0: free
	used  int
	rest  ranks.Traffic // to partners beyond partnersMax
}

func (t *traffic) add(dst uint32, n uint64) {
	if len(t.cells) == 0 {
		t.cells = make([]Talk, 8)
	}
	k := t.find(dst)
	if k.Messages == 0 {
		if t.used == partnersMax {
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
func (t *traffic) find(dst uint32) *Talk {
	mask := uint32(len(t.cells) - 1)
	i := dst * 0x9e3779b1 >> (32 - bits.Len32(mask))
	for ; t.cells[i].Messages != 0 && t.cells[i].Dst != dst; i = (i + 1) & mask {
	}
	return &t.cells[i]
}

func (t *traffic) grow() {
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
	tx.endpoints[src].traffic.add(dst, n)
}

// Talks appends the ranks that a rank of this sidecar has sent to, and returns its traffic to
// further ranks, which are not counted separately.
func (tx *sender) Talks(rank uint32, to []Talk) (all []Talk, rest ranks.Traffic) {
	t := &tx.endpoints[rank].traffic
	for _, k := range t.cells {
		if k.Messages != 0 {
			to = append(to, k)
		}
	}
	return to, t.rest
}
