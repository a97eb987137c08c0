package coll

func (l *Plan) reduceScatterSize() (rounds int, scratch int64) {
	total, own := l.in.span(0, l.p.Size), l.in.len(l.p.Rank)
	f := foldGroup(&l.all, -1)
	switch {
	case l.algorithm != Pairwise && f.pos < 0:
		return 2*f.extra() + f.levels(), 0
	case l.algorithm != Pairwise:
		return 2*f.extra() + f.levels(), 2 * total
	}
	return windows(l.p.Size - 1), l.pairwiseOperands().off + own*int64(min(pairwiseWindow, l.p.Size-1))
}

func (l *Plan) reduceScatter(w *round, i int) {
	if l.algorithm == Pairwise {
		l.pairwiseReduceScatter(w, i)
		return
	}
	l.exchangedReduceScatter(w, i)
}

// exchangedReduceScatter combines by recursive halving, or by recursive doubling, which sends
// more but keeps operands in order. The accumulator is in Scratch, because Out has room for
// the own block only, and may be a part of In.
func (l *Plan) exchangedReduceScatter(w *round, i int) {
	g := &l.all
	f := foldGroup(g, -1)
	total := l.in.span(0, l.p.Size)
	v := vector{src: position{buf: In}, acc: position{buf: Scratch}, tmp: position{Scratch, total}, count: total, elem: 1}
	last := f.extra() + f.levels() - 1
	switch {
	case i < f.extra():
		w.foldIn(g, &f, &v)
		return
	case i > last:
		l.deliverBlock(w, &f)
		return
	case l.algorithm == RecursiveHalving:
		c := cuts{partition: l.in, pairs: f.rest}
		w.exchangeHalf(g, &f, &v, &c, i-f.extra())
	default:
		w.exchangeAll(g, &f, &v, i-f.extra())
	}
	if i == last && f.pos >= 0 {
		w.copy(position{buf: Out}, v.acc.plus(l.in.off(g.rank)), l.in.len(g.rank))
	}
}

// deliverBlock sends each resting rank its block.
func (l *Plan) deliverBlock(w *round, f *folded) {
	switch {
	case f.mate < 0:
	case f.pos < 0:
		w.recv(&l.all, f.mate, position{buf: Out}, l.in.len(l.p.Rank))
	default:
		w.send(&l.all, f.mate, position{Scratch, l.in.off(f.mate)}, l.in.len(f.mate))
	}
}

// pairwiseOperands returns the position at which the operands of a window are received: after
// the accumulator of this rank and the ranks above it and, except at rank 0, that of the ranks
// below it.
func (l *Plan) pairwiseOperands() position {
	return position{Scratch, l.in.len(l.p.Rank) * int64(min(1+l.p.Rank, 2))}
}

// pairwiseReduceScatter sends each rank its block, a window in each round, and combines those
// that it receives. They arrive in rank order from this rank on, around the end: first those
// to the right of the own operand, then those to its left, so that two accumulators keep the
// operands of any operation in order.
func (l *Plan) pairwiseReduceScatter(w *round, i int) {
	g, n := &l.all, l.in.len(l.p.Rank)
	upper, lower, operands := position{buf: Scratch}, position{Scratch, n}, l.pairwiseOperands()
	first, end := window(i, g.size)
	for k := first; k < end; k++ {
		to, from := g.wrap(g.rank-k), g.wrap(g.rank+k)
		w.send(g, to, l.in.at(to), l.in.len(to))
		if from == 0 {
			w.recv(g, from, lower, n)
		} else {
			w.recv(g, from, operands.plus(n*int64(k-first)), n)
		}
	}
	if i == 0 {
		w.copy(upper, l.in.at(g.rank), n)
	}
	for k := first; k < end; k++ {
		operand := operands.plus(n * int64(k-first))
		switch from := g.wrap(g.rank + k); {
		case from > g.rank:
			w.fold(upper, operand, n, true)
		case from > 0:
			w.fold(lower, operand, n, true)
		}
	}
	if end < g.size {
		return
	}
	if g.rank > 0 {
		w.fold(upper, lower, n, false)
	}
	w.copy(position{buf: Out}, upper, n)
}
