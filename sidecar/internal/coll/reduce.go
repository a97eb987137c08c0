package coll

func (l *Plan) reduceSize() (rounds int, scratch int64) {
	if l.algorithm == Rabenseifner {
		f := foldGroup(&l.all, l.p.Root)
		return f.extra() + 2*f.levels(), l.halvedReduceScratch(&f)
	}
	if l.algorithm == DoubleTree {
		t := newDoubleTree(&l.all, l.p.Root, int64(l.p.Count), int64(l.p.Elem))
		return t.rounds(), t.reduceScratch(l.p.Rank == l.p.Root, l.p.InPlace)
	}
	rounds = levels(l.p.Size)
	if l.treeRoot() != l.p.Root {
		rounds++
	}
	return rounds, l.treeReduceScratch(&l.all, l.treeRoot())
}

// treeRoot returns the root of the reduction tree. The numbers from the root on are in rank
// order only if the root is rank 0. Operands that must stay in order are combined at rank 0,
// which then sends the result to the root.
func (l *Plan) treeRoot() int {
	if l.p.Commutative {
		return l.p.Root
	}
	return 0
}

// treeReduceScratch counts the accumulator, unless it is Out as at the root, and the memory
// for an operand, which the first child does not need.
func (l *Plan) treeReduceScratch(g *group, root int) int64 {
	children := treeChildren(g.relative(root), g.size)
	scratch := int64(0)
	if children > 0 && l.p.Rank != l.p.Root {
		scratch += l.bytes
	}
	if children > 1 || children > 0 && l.p.InPlace {
		scratch += l.bytes
	}
	return scratch
}

// reduceVector returns the vector of Reduce at this rank.
func (l *Plan) reduceVector() vector {
	v := vector{src: position{buf: In}, count: int64(l.p.Count), elem: int64(l.p.Elem)}
	if l.p.Rank != l.p.Root {
		v.acc, v.tmp = position{buf: Scratch}, position{Scratch, l.bytes}
		return v
	}
	v.acc, v.tmp = position{buf: Out}, position{buf: Scratch}
	if l.p.InPlace {
		v.src = v.acc
	}
	return v
}

func (l *Plan) reduce(w *round, i int) {
	v := l.reduceVector()
	if l.algorithm == Rabenseifner {
		halvedReduce(w, &l.all, l.p.Root, &v, i)
		return
	}
	if l.algorithm == DoubleTree {
		t := newDoubleTree(&l.all, l.p.Root, v.count, v.elem)
		t.reduce(w, &v, i)
		return
	}
	root := l.treeRoot()
	if i < levels(l.p.Size) {
		treeReduce(w, &l.all, root, &v, i)
		return
	}
	switch l.p.Rank {
	case root:
		w.send(&l.all, l.p.Root, v.acc, l.bytes)
	case l.p.Root:
		w.recv(&l.all, root, v.acc, l.bytes)
	}
}

// treeReduce adds round i of a reduction up a binomial tree. A child's operand covers the
// ranks after those that its parent has combined, so that operands stay in order, counted from
// the root.
func treeReduce(w *round, g *group, root int, v *vector, i int) {
	parent, child := treeUp(g, root, i)
	if parent >= 0 {
		leaf := treeChildren(g.relative(root), g.size) == 0
		w.send(g, parent, v.own(leaf), v.bytes())
	}
	if child >= 0 {
		w.merge(g, child, v, 0, v.bytes(), i == 0, false)
	}
}

// halvedReduce adds round i of Rabenseifner's reduction: a reduce-scatter by recursive
// halving, and then a gather of the parts to the root.
func halvedReduce(w *round, g *group, root int, v *vector, i int) {
	f := foldGroup(g, root)
	if i < f.extra() {
		w.foldIn(g, &f, v)
		return
	}
	i -= f.extra()
	c := cuts{partition: even(v.acc, v.count, v.elem, f.size)}
	if i < f.levels() {
		w.exchangeHalf(g, &f, v, &c, i)
		return
	}
	at := foldPosition(g, &f, root)
	w.collectParts(g, &f, &c, at, i-f.levels())
}

// foldPosition returns the position of a rank that does not rest.
func foldPosition(g *group, f *folded, rank int) int {
	if rank < 2*f.rest {
		return rank / 2
	}
	return rank - f.rest
}

// halvedReduceScratch counts the accumulator and the longest operand: the
// whole vector from a resting rank, or half of it.
func (l *Plan) halvedReduceScratch(f *folded) int64 {
	if f.pos < 0 {
		return 0
	}
	scratch := halvedOperand(f, int64(l.p.Count), int64(l.p.Elem))
	if l.p.Rank != l.p.Root {
		scratch += l.bytes
	}
	return scratch
}

// halvedOperand returns the length of the longest operand of recursive halving in tmp.
func halvedOperand(f *folded, count, elem int64) int64 {
	if f.mate >= 0 {
		return count * elem
	}
	part := even(position{}, count, elem, f.size)
	return part.span(0, f.size/2)
}
