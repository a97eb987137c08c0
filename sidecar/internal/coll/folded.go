package coll

// folded maps a group onto the largest power of two of positions that it
// fills. The first ranks are taken in pairs, as many as there are too many
// ranks; one of each pair hands its operand to the other and rests until the
// result comes back. Pairs are neighbours, so positions keep the rank order.
type folded struct {
	size int // positions, a power of two
	rest int // pairs
	keep int // a rank that must not rest, or -1
	pos  int // own position, or -1 if this rank rests
	mate int // the other rank of the pair, or -1
}

// foldGroup lets the upper rank of a pair stay, except where keep is the lower.
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

// extra is the number of rounds that folding, or unfolding, takes.
func (f *folded) extra() int {
	if f.rest > 0 {
		return 1
	}
	return 0
}

func (f *folded) levels() int { return levels(f.size) }

// fresh reports whether the own operand is untouched by folding.
func (f *folded) fresh() bool { return f.mate < 0 }

// foldIn is the round in which operands of resting ranks are handed over.
func (w *round) foldIn(g *group, f *folded, v *vector) {
	switch {
	case f.mate < 0:
	case f.pos < 0:
		w.send(g, f.mate, v.src, v.bytes())
	default:
		w.merge(g, f.mate, v, 0, v.bytes(), true, f.mate < g.rank)
	}
}

// foldOut is the round in which resting ranks get the result.
func (w *round) foldOut(g *group, f *folded, v *vector) {
	switch {
	case f.mate < 0:
	case f.pos < 0:
		w.recv(g, f.mate, v.acc, v.bytes())
	default:
		w.send(g, f.mate, v.acc, v.bytes())
	}
}

// exchangeAll is step s of recursive doubling: positions at distance 2^s
// exchange all they have combined. Both combine the same operands in the same
// order, so results are the same to the bit, and in rank order.
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

// cuts divides a vector over the positions of a folded group. With pairs, the
// parts are blocks by rank and a position has the blocks of both its ranks;
// without, they are blocks by position.
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

// aligned returns where the n positions around pos that start at a multiple
// of n begin, and how long their part is. n is a power of two.
func (c *cuts) aligned(pos, n int) (off, bytes int64) {
	first := pos &^ (n - 1)
	off = c.cut(first)
	return off, c.cut(first+n) - off
}

// exchangeHalf is step s of recursive halving: of what a position still works
// on, it gives the half on the other side and keeps its own. After the last
// step acc holds the final result of the part of the position.
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

// exchangeParts is step s of an allgather by recursive doubling: positions at
// distance 2^s exchange the 2^s parts that they have. Own is where the own
// part is at the start.
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

// collectParts is step s of a gather of the parts to position root.
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
