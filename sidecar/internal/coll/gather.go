package coll

// linearWindow is the number of ranks that the root of a linear gather or scatter serves at
// once: enough to fill a link, and few enough for a bounded round.
const linearWindow = 32

func linearRounds(ranks int) int { return (ranks - 1 + linearWindow - 1) / linearWindow }

func (l *Plan) gatherSize() (rounds int, scratch int64) {
	if l.algorithm == Linear {
		return linearRounds(l.p.Size), 0
	}
	return levels(l.p.Size), l.treeScratch()
}

// treeScratch returns the bytes for the blocks of the own subtree, at ranks that forward
// blocks of other ranks. Clients allocate these and no others: if the ranks of a pod do not follow
// each other, none of them may have memory for the pod's blocks, so that there are no two levels.
func (l *Plan) treeScratch() int64 {
	v := l.all.relative(l.p.Root)
	children := treeChildren(v, l.p.Size)
	if v == 0 || children == 0 {
		return 0
	}
	return l.bytes * int64(subtree(v, children, l.p.Size)-v)
}

func (l *Plan) gather(w *round, i int) {
	if l.algorithm == Linear {
		l.linearGather(w, i)
		return
	}
	g, root := &l.all, l.p.Root
	parent, child := treeUp(g, root, i)
	v := g.relative(root)
	if parent >= 0 {
		from := position{buf: Scratch}
		if treeChildren(v, g.size) == 0 {
			from = position{buf: In}
		}
		w.sendBlocks(g, parent, from, l.bytes, l.split(v, subtree(v, i, g.size), v-1<<i))
	}
	if child >= 0 {
		c := v + 1<<i
		l.recvSubtree(w, child, c, l.split(c, subtree(c, i, g.size), v))
	}
	if i == 0 {
		l.copyOwn(w, v)
	}
}

// split divides the blocks first to end-1, counted from the root on, for the message between
// their owner and number other. In the buffer of the root the rank after the last is rank 0,
// so that a piece ends there; in all other buffers the blocks are one piece.
func (l *Plan) split(first, end, other int) (pieces [2]int) {
	wrap := l.p.Size - l.p.Root // the number of rank 0, or Size
	if other == 0 && first < wrap && wrap < end {
		return [2]int{wrap - first, end - wrap}
	}
	return [2]int{end - first, 0}
}

// sendBlocks and recvBlocks move pieces of consecutive blocks.
func (w *round) sendBlocks(g *group, to int, from position, block int64, pieces [2]int) {
	w.send(g, to, from, block*int64(pieces[0]))
	w.send(g, to, from.plus(block*int64(pieces[0])), block*int64(pieces[1]))
}

func (w *round) recvBlocks(g *group, from int, to position, block int64, pieces [2]int) {
	w.recv(g, from, to, block*int64(pieces[0]))
	w.recv(g, from, to.plus(block*int64(pieces[0])), block*int64(pieces[1]))
}

// recvSubtree receives the subtree of number c: at the root into the result, at other ranks
// into Scratch, which holds the own subtree.
func (l *Plan) recvSubtree(w *round, child, c int, pieces [2]int) {
	g := &l.all
	v := g.relative(l.p.Root)
	if v != 0 {
		w.recvBlocks(g, child, position{Scratch, l.bytes * int64(c-v)}, l.bytes, pieces)
		return
	}
	w.recv(g, child, l.out.at(g.absolute(c, l.p.Root)), l.bytes*int64(pieces[0]))
	w.recv(g, child, l.out.at(0), l.bytes*int64(pieces[1]))
}

// copyOwn copies the own block in front of those of the subtree.
func (l *Plan) copyOwn(w *round, v int) {
	switch {
	case v == 0:
		w.copy(l.out.at(l.p.Rank), l.ownBlock(), l.bytes)
	case treeChildren(v, l.p.Size) > 0:
		w.copy(position{buf: Scratch}, position{buf: In}, l.bytes)
	}
}

func (l *Plan) linearGather(w *round, i int) {
	g, root := &l.all, l.p.Root
	v := g.relative(root)
	if v != 0 {
		if (v-1)/linearWindow == i {
			w.send(g, root, position{buf: In}, l.bytes)
		}
		return
	}
	for c := 1 + i*linearWindow; c < min(1+(i+1)*linearWindow, g.size); c++ {
		from := g.absolute(c, root)
		w.recv(g, from, l.out.at(from), l.out.len(from))
	}
	if i == 0 {
		w.copy(l.out.at(root), l.ownBlock(), l.out.len(root))
	}
}
