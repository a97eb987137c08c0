package coll

func (l *Plan) reduceScatterSize() (rounds int, scratch int64) {
	total, own := l.in.span(0, l.p.Size), l.in.len(l.p.Rank)
	f := foldGroup(&l.all, -1)
	switch {
	case l.algorithm != Pairwise && f.pos < 0:
		return 2*f.extra() + f.levels(), 0
	case l.algorithm != Pairwise:
		return 2*f.extra() + f.levels(), 2 * total
	case l.p.Commutative:
		return windows(l.p.Size - 1), (1 + pairwiseWindow) * own
	}
	return windows(l.p.Size-1) + orderedFolds(l.p.Size), product(own, l.p.Size)
}

func (l *Plan) reduceScatter(w *round, i int) {
	switch {
	case l.algorithm != Pairwise:
		l.exchangedReduceScatter(w, i)
	case l.p.Commutative:
		l.pairwiseReduceScatter(w, i)
	default:
		l.orderedReduceScatter(w, i)
	}
}

// exchangedReduceScatter combines by recursive halving, or by recursive
// doubling, which sends more but keeps operands in order. The accumulator is
// in Scratch, because Out has room for the own block only, and may be a part
// of In.
func (l *Plan) exchangedReduceScatter(w *round, i int) {
	g := &l.all
	f := foldGroup(g, -1)
	total := l.in.span(0, l.p.Size)
	v := vector{src: place{buf: In}, acc: place{buf: Scratch}, tmp: place{Scratch, total}, count: total, elem: 1}
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
		w.copy(place{buf: Out}, v.acc.plus(l.in.off(g.rank)), l.in.len(g.rank))
	}
}

// deliverBlock gives each resting rank its block.
func (l *Plan) deliverBlock(w *round, f *folded) {
	switch {
	case f.mate < 0:
	case f.pos < 0:
		w.recv(&l.all, f.mate, place{buf: Out}, l.in.len(l.p.Rank))
	default:
		w.send(&l.all, f.mate, place{Scratch, l.in.off(f.mate)}, l.in.len(f.mate))
	}
}

// pairwiseReduceScatter sends each rank its block and combines those that
// come, a window a round.
func (l *Plan) pairwiseReduceScatter(w *round, i int) {
	g, n := &l.all, l.in.len(l.p.Rank)
	acc := place{buf: Scratch}
	first, end := window(i, g.size)
	for k := first; k < end; k++ {
		to, from := g.wrap(g.rank+k), g.wrap(g.rank-k)
		w.send(g, to, l.in.at(to), l.in.len(to))
		w.recv(g, from, acc.plus(n*int64(1+k-first)), n)
	}
	if i == 0 {
		w.copy(acc, l.in.at(g.rank), n)
	}
	for k := first; k < end; k++ {
		w.fold(acc, acc.plus(n*int64(1+k-first)), n, false)
	}
	if end == g.size {
		w.copy(place{buf: Out}, acc, n)
	}
}

// foldsPerRound bounds the local steps of orderedReduceScatter.
const foldsPerRound = 64

// orderedFolds is the number of rounds in which n operands are combined.
func orderedFolds(n int) int { return (n - 1 + foldsPerRound - 1) / foldsPerRound }

// orderedReduceScatter collects the operands of the own block from all ranks,
// pairwise so that nobody is a hot spot, and then combines them in rank order.
func (l *Plan) orderedReduceScatter(w *round, i int) {
	g, n := &l.all, l.in.len(l.p.Rank)
	base := place{buf: Scratch}
	if i < windows(g.size-1) {
		first, end := window(i, g.size)
		for k := first; k < end; k++ {
			to, from := g.wrap(g.rank+k), g.wrap(g.rank-k)
			w.send(g, to, l.in.at(to), l.in.len(to))
			w.recv(g, from, base.plus(n*int64(from)), n)
		}
		if i == 0 {
			w.copy(base.plus(n*int64(g.rank)), l.in.at(g.rank), n)
		}
		return
	}
	first := 1 + (i-windows(g.size-1))*foldsPerRound
	end := min(first+foldsPerRound, g.size)
	for k := first; k < end; k++ {
		w.fold(base, base.plus(n*int64(k)), n, true)
	}
	if end == g.size {
		w.copy(place{buf: Out}, base, n)
	}
}
