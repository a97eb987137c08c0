package coll

func (l *Plan) allreduceSize() (rounds int, scratch int64) {
	return combineSize(l.podOrder(), l.algorithm, int64(l.p.Count), int64(l.p.Elem))
}

func (l *Plan) allreduce(w *round, i int) {
	v := l.outVector()
	combine(w, l.podOrder(), l.algorithm, &v, i)
}

// podOrder returns all ranks, for a ring pod by pod.
func (l *Plan) podOrder() *group {
	if l.algorithm == Ring && l.p.Layout.pays() {
		return &l.byPod
	}
	return &l.all
}

// outVector returns the vector of Allreduce and Scan, whose accumulator is Out.
func (l *Plan) outVector() vector {
	return vector{
		src: l.contribution(), acc: position{buf: Out}, tmp: position{buf: Scratch},
		count: int64(l.p.Count), elem: int64(l.p.Elem),
	}
}

// combineSize returns the rounds of an allreduce within a group, and the length of the longest
// operand in tmp.
func combineSize(g *group, a Algorithm, count, elem int64) (rounds int, operand int64) {
	switch a {
	case Ring:
		part := even(position{}, count, elem, g.size)
		return 2 * (g.size - 1), part.len(0)
	case Rabenseifner:
		f := foldGroup(g, -1)
		return 2*f.extra() + 2*f.levels(), halvedOperand(&f, count, elem)
	}
	return levels(g.size), count * elem
}

// combine adds round i of an allreduce within a group.
func combine(w *round, g *group, a Algorithm, v *vector, i int) {
	switch a {
	case Ring:
		ringAllreduce(w, g, v, i)
	case Rabenseifner:
		halvedAllreduce(w, g, v, i)
	default:
		doubledAllreduce(w, g, v, i)
	}
}

// halvedAllreduce adds round i of Rabenseifner's algorithm: each position combines one part,
// and then the parts are gathered by recursive doubling.
func halvedAllreduce(w *round, g *group, v *vector, i int) {
	f := foldGroup(g, -1)
	c := cuts{partition: even(v.acc, v.count, v.elem, f.size)}
	n := f.levels()
	switch i -= f.extra(); {
	case i < 0:
		w.foldIn(g, &f, v)
	case i < n:
		w.exchangeHalf(g, &f, v, &c, i)
	case i < 2*n:
		off, _ := c.aligned(max(f.pos, 0), 1)
		w.exchangeParts(g, &f, &c, v.acc.plus(off), i-n)
	default:
		w.foldOut(g, &f, v)
	}
}

// ringAllreduce sends one chunk to the next rank in each round: once around the ring to
// combine, and once more to spread the result (Patarasuk and Yuan 2009). Each rank sends about
// twice the vector, to one neighbour.
func ringAllreduce(w *round, g *group, v *vector, i int) {
	part := even(v.acc, v.count, v.elem, g.size)
	if i >= g.size-1 {
		ringAllgather(w, g, 0, &part, part.at(g.rank), i-(g.size-1))
		return
	}
	// The chunk that ends here started at the next rank, so that after the
	// last round each rank has the chunk of its own number.
	out := g.wrap(g.rank - 1 - i)
	in := g.wrap(out - 1)
	w.send(g, g.wrap(g.rank+1), v.own(i == 0).plus(part.off(out)), part.len(out))
	w.merge(g, g.wrap(g.rank-1), v, part.off(in), part.len(in), true, true)
}
