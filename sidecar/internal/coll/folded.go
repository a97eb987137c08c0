package coll

// folded maps a group onto the largest power of two of positions that it fills. Each rank in
// excess of that makes a pair with another rank, at the beginning of the group. One rank of
// each pair passes its operand to the other and rests until the result arrives. Pairs are
// neighbours, so that positions keep the rank order.
type folded struct {
	size int // positions, a power of two
	rest int // pairs
	keep int // a rank that must not rest, or -1
	pos  int // own position, or -1 if this rank rests
	mate int // the other rank of the pair, or -1
}

// foldGroup lets the lower rank of a pair rest, unless that is keep.
func foldGroup(g *group, keep int) folded {
	size := floorPower(g.size)
	f := folded{size: size, rest: g.size - size, keep: keep, mate: -1}
	if g.rank >= 2*f.rest {
		f.pos = g.rank - f.rest
		return f
	}
	f.mate = g.rank ^ 1
	f.pos = g.rank / 2
	if f.rank(f.pos) != g.rank {
		f.pos = -1
	}
	return f
}

// rank returns the group rank at a position.
func (f *folded) rank(pos int) int {
	switch {
	case pos >= f.rest:
		return pos + f.rest
	case f.keep == 2*pos:
		return f.keep
	}
	return 2*pos + 1
}

// extra returns the number of rounds for folding, or for unfolding.
func (f *folded) extra() int {
	if f.rest > 0 {
		return 1
	}
	return 0
}

func (f *folded) levels() int { return levels(f.size) }

// fresh reports whether the own operand is untouched by folding.
func (f *folded) fresh() bool { return f.mate < 0 }

// foldIn adds the round in which resting ranks pass on their operands.
func (w *round) foldIn(g *group, f *folded, v *vector) {
	switch {
	case f.mate < 0:
	case f.pos < 0:
		w.send(g, f.mate, v.src, v.bytes())
	default:
		w.merge(g, f.mate, v, 0, v.bytes(), true, f.mate < g.rank)
	}
}

// foldOut adds the round in which resting ranks receive the result.
func (w *round) foldOut(g *group, f *folded, v *vector) {
	switch {
	case f.mate < 0:
	case f.pos < 0:
		w.recv(g, f.mate, v.acc, v.bytes())
	default:
		w.send(g, f.mate, v.acc, v.bytes())
	}
}

// exchangeAll adds step s of recursive doubling: positions at distance 2^s exchange everything
// that they have combined. Both combine the same operands in the same order, so that results
// are the same to the bit, and in rank order.
func (w *round) exchangeAll(g *group, f *folded, v *vector, s int) {
	if f.pos < 0 {
		return
	}
	fresh := s == 0 && f.fresh()
	other := f.pos ^ 1<<s
	peer := f.rank(other)
	w.send(g, peer, v.own(fresh), v.bytes())
	w.merge(g, peer, v, 0, v.bytes(), fresh, other < f.pos)
}

// cuts divides a vector over the positions of a folded group. If there are pairs, the parts
// are blocks by rank, and a position has the blocks of both its ranks; otherwise they are
// blocks by position.
type cuts struct {
	partition
	pairs int
}

func (c *cuts) cut(pos int) int64 {
	if pos < c.pairs {
		return c.off(2 * pos)
	}
	return c.off(pos + c.pairs)
}

// aligned returns the offset and the length of the part of the n positions that contain pos
// and start at a multiple of n. n is a power of two.
func (c *cuts) aligned(pos, n int) (off, bytes int64) {
	first := pos &^ (n - 1)
	off = c.cut(first)
	return off, c.cut(first+n) - off
}

// exchangeHalf adds step s of recursive halving: a position sends the half of its current
// range that belongs to the other side, and keeps its own half. After the last step acc holds
// the final result of the position's part.
func (w *round) exchangeHalf(g *group, f *folded, v *vector, c *cuts, s int) {
	if f.pos < 0 {
		return
	}
	half := f.size >> (s + 1)
	other := f.pos ^ half
	peer := f.rank(other)
	fresh := s == 0 && f.fresh()
	off, bytes := c.aligned(other, half)
	w.send(g, peer, v.own(fresh).plus(off), bytes)
	off, bytes = c.aligned(f.pos, half)
	w.merge(g, peer, v, off, bytes, fresh, other < f.pos)
}

// exchangeParts adds step s of an allgather by recursive doubling: positions at distance 2^s
// exchange the 2^s parts that they have. own is the position of the own part at the start.
func (w *round) exchangeParts(g *group, f *folded, c *cuts, own position, s int) {
	if f.pos < 0 {
		return
	}
	other := f.pos ^ 1<<s
	peer := f.rank(other)
	off, bytes := c.aligned(f.pos, 1<<s)
	from := c.base.plus(off)
	if s == 0 {
		from = own
	}
	w.send(g, peer, from, bytes)
	theirs, n := c.aligned(other, 1<<s)
	w.recv(g, peer, c.base.plus(theirs), n)
	if s == 0 {
		w.copy(c.base.plus(off), own, bytes)
	}
}

// collectParts adds step s of a gather of the parts to position root.
func (w *round) collectParts(g *group, f *folded, c *cuts, root, s int) {
	if f.pos < 0 || (f.pos^root)&(1<<s-1) != 0 {
		return
	}
	other := f.pos ^ 1<<s
	if (f.pos^root)&(1<<s) != 0 {
		off, bytes := c.aligned(f.pos, 1<<s)
		w.send(g, f.rank(other), c.base.plus(off), bytes)
		return
	}
	off, bytes := c.aligned(other, 1<<s)
	w.recv(g, f.rank(other), c.base.plus(off), bytes)
}
