package coll

func (l *Plan) allgatherSize() (rounds int, scratch int64) {
	switch l.algorithm {
	case RecursiveDoubling:
		return levels(l.p.Size), 0
	case Bruck:
		return levels(l.p.Size), l.bytes * int64(l.p.Size)
	}
	return l.p.Size - 1, 0
}

func (l *Plan) allgather(w *round, i int) {
	switch l.algorithm {
	case RecursiveDoubling:
		f := foldGroup(&l.all, -1) // the size is a power of two, so that no rank rests
		c := cuts{partition: l.out}
		w.exchangeParts(&l.all, &f, &c, l.ownBlock(), i)
	case Bruck:
		l.bruckAllgather(w, i)
	default:
		ringAllgather(w, &l.all, 0, &l.out, l.ownBlock(), i)
	}
}

// ringAllgather adds round i of size-1: each rank passes on the block that it received last,
// starting with its own. Blocks are numbered from the root on. own is the position of the own
// block at the start.
func ringAllgather(w *round, g *group, root int, part *partition, own position, i int) {
	v := g.relative(root)
	out := g.wrap(v - i)
	in := g.wrap(out - 1)
	from := part.at(out)
	if i == 0 {
		from = own
	}
	w.send(g, g.wrap(g.rank+1), from, part.len(out))
	w.recv(g, g.wrap(g.rank-1), part.at(in), part.len(in))
	if i == 0 {
		w.copy(part.at(v), own, part.len(v))
	}
}

// bruckAllgather collects the blocks of this rank and of those after it: in round i, 2^i of
// them are received from the rank 2^i ahead. In Scratch they start with the own block; the
// last round copies them into rank order.
func (l *Plan) bruckAllgather(w *round, i int) {
	g, base := &l.all, position{buf: Scratch}
	have := 1 << i
	bytes := l.bytes * int64(min(have, g.size-have))
	from := base
	if i == 0 {
		from = l.ownBlock()
	}
	w.send(g, g.wrap(g.rank-have), from, bytes)
	w.recv(g, g.wrap(g.rank+have), base.plus(l.bytes*int64(have)), bytes)
	if i == 0 {
		w.copy(base, l.ownBlock(), l.bytes)
	}
	if i == levels(g.size)-1 {
		tail := l.bytes * int64(g.size-g.rank)
		w.copy(l.out.at(g.rank), base, tail)
		w.copy(l.out.at(0), base.plus(tail), l.out.off(g.rank))
	}
}
