package coll

// pairwiseWindow is the number of ranks that a rank exchanges with at once,
// as in the alltoall of paper 001, section 4.2.2.
const pairwiseWindow = 4

// windows returns the number of rounds for n exchanges.
func windows(n int) int { return (n + pairwiseWindow - 1) / pairwiseWindow }

// window returns the distances first to end-1 that round i serves.
func window(i, ranks int) (first, end int) {
	first = 1 + i*pairwiseWindow
	return first, min(first+pairwiseWindow, ranks)
}

func (l *Plan) alltoallSize() (rounds int, scratch int64) {
	if l.algorithm == Bruck {
		b := l.bruck()
		return 1 + levels(l.p.Size), b.recv.off + b.half
	}
	return windows(l.p.Size - 1), 0
}

// alltoall exchanges, at distance k, with the rank k ahead and the one k behind. Receives
// precede sends in a round, so that more messages find their receives posted.
func (l *Plan) alltoall(w *round, i int) {
	if l.algorithm == Bruck {
		l.bruckAlltoall(w, i)
		return
	}
	g := &l.all
	first, end := window(i, g.size)
	for k := first; k < end; k++ {
		from := g.wrap(g.rank - k)
		w.recv(g, from, l.out.at(from), l.out.len(from))
	}
	for k := first; k < end; k++ {
		to := g.wrap(g.rank + k)
		w.send(g, to, l.in.at(to), l.in.len(to))
	}
	if i == 0 {
		w.copy(l.out.at(g.rank), l.in.at(g.rank), min(l.in.len(g.rank), l.out.len(g.rank)))
	}
}

// bruck is the division of Scratch by Bruck's alltoall.
type bruck struct {
	work       position // all blocks, by the distance of their targets
	send, recv position // the blocks of one round
	half       int64    // bytes of send and of recv
}

func (l *Plan) bruck() bruck {
	// A round sends the blocks whose number has its bit: at most half of the next power of two,
	// and at most all blocks but block 0.
	n := min(1<<(levels(l.p.Size)-1), l.p.Size-1)
	b := bruck{half: l.bytes * int64(n)}
	b.work = position{buf: Scratch}
	b.send = b.work.plus(l.bytes * int64(l.p.Size))
	b.recv = b.send.plus(b.half)
	return b
}

// bruckAlltoall sends blocks over distances that are powers of two: a block for the rank d
// ahead travels in the rounds of the bits of d. Each block is moved several times, but there
// are few messages. Round 0 is local; the blocks of a round are packed at the end of the round
// before.
func (l *Plan) bruckAlltoall(w *round, i int) {
	g, b := &l.all, l.bruck()
	if i == 0 {
		tail := l.bytes * int64(g.size-g.rank)
		w.copy(b.work, l.in.at(g.rank), tail)
		w.copy(b.work.plus(tail), l.in.at(0), l.in.off(g.rank))
	} else {
		bit := 1 << (i - 1)
		bytes := l.bytes * int64(blocksWith(bit, g.size))
		w.send(g, g.wrap(g.rank+bit), b.send, bytes)
		w.recv(g, g.wrap(g.rank-bit), b.recv, bytes)
		l.bruckPack(w, bit, b.recv, b.work, true)
	}
	if i < levels(g.size) {
		l.bruckPack(w, 1<<i, b.send, b.work, false)
		return
	}
	// Work block d now holds the block that the rank d behind has sent to this rank.
	for d := range g.size {
		w.copy(l.out.at(g.wrap(g.rank-d)), b.work.plus(l.bytes*int64(d)), l.bytes)
	}
}

// bruckPack copies the blocks whose number has the bit between work and the packed position,
// or back. They are in runs of bit blocks.
func (l *Plan) bruckPack(w *round, bit int, packed, work position, unpack bool) {
	for first := bit; first < l.p.Size; first += 2 * bit {
		bytes := l.bytes * int64(min(bit, l.p.Size-first))
		at := work.plus(l.bytes * int64(first))
		if unpack {
			w.copy(at, packed, bytes)
		} else {
			w.copy(packed, at, bytes)
		}
		packed = packed.plus(bytes)
	}
}

// blocksWith counts the numbers below n that have the bit.
func blocksWith(bit, n int) int {
	return n/(2*bit)*bit + max(0, n%(2*bit)-bit)
}
