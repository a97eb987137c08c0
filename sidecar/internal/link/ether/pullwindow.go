package ether

import "math/bits"

// The congestion control of pulls: the receiver asks for no more than a window, which grows
// and shrinks as TCP's (RFC 5681): by all that comes until the first loss, then by a fragment
// in a round trip, and a loss halves it, once for all losses of a round trip. Blocks become
// smaller with the window, so that up to four are under way, and a later one shows what an
// earlier one has lost. Without a later block the time shows it (RFC 6298).

// partsLeast is the smallest window, in fragments.
const partsLeast = 4

// backoffMost bounds the doubling of the time-out; rtoMost bounds its result.
const backoffMost = 7

// windowBytes returns the bytes that may be under way.
func (q *puller) windowBytes() uint64 { return uint64(q.window * blockBytes) }

// parts returns the number of fragments of a block, if there is credit for most of them. A
// window of two blocks has whole ones: a call of the kernel costs the least for each byte then.
func (q *puller) parts(frag uint32, most uint64) uint64 {
	n := uint64(blockBytes)
	if w := q.windowBytes(); w < 2*blockBytes {
		n = w / 4
	}
	return min(max(min(n/uint64(frag), most/2), 1), blockParts)
}

// repeats returns for how many fragments a block may be asked again at once.
func (q *puller) repeats(frag uint32) int {
	return int(max(q.windowBytes()/2/uint64(frag), 1))
}

// succeeded records that a block of n bytes has come without a loss, in a time.
func (q *puller) succeeded(n, frag uint64, took int64) {
	q.backoff = 0
	if q.rtt == 0 {
		q.rtt, q.vary = took, took/2
	} else {
		q.vary += (max(q.rtt-took, took-q.rtt) - q.vary) / 4
		q.rtt += (took - q.rtt) / 8
	}
	if q.active+n < q.windowBytes()/2 { // the window is not used
		return
	}
	gain := float64(n) / blockBytes
	if q.grown {
		gain *= float64(frag) / blockBytes / q.window
	}
	q.window = min(q.window+gain, blocksMax)
}

// lost records the loss of a part of what an ask has asked for.
func (q *puller) lost(order uint64, frag uint32) {
	if order <= q.cut {
		return
	}
	q.cut, q.grown = q.order, true
	q.window = max(q.window/2, partsLeast*float64(frag)/blockBytes)
}

// timeout returns the time after which a block is asked for again.
func (q *puller) timeout() int64 {
	rto := rtoFirst
	if q.rtt > 0 {
		rto = max(q.rtt+4*q.vary, rtoLeast)
	}
	return min(rto<<q.backoff, rtoMost)
}

// lowest returns the lowest bits of a mask, at most n.
func lowest(mask uint64, n int) (low uint64) {
	if bits.OnesCount64(mask) <= n {
		return mask
	}
	for ; n > 0; n-- {
		bit := mask & -mask
		low, mask = low|bit, mask&^bit
	}
	return low
}
