package coll

func (l *Plan) scatterSize() (rounds int, scratch int64) {
	if l.algorithm == Linear {
		return linearRounds(l.p.Size), 0
	}
	return levels(l.p.Size), l.treeScratch()
}

// scatter adds round i of a scatter, whose rounds are those of a gather in reverse.
func (l *Plan) scatter(w *round, i int) {
	if l.algorithm == Linear {
		l.linearScatter(w, i)
		return
	}
	g, root := &l.all, l.p.Root
	up := levels(g.size) - 1 - i // the round of the gather
	parent, child := treeDown(g, root, i)
	v := g.relative(root)
	if parent >= 0 {
		to := position{buf: Scratch}
		if treeChildren(v, g.size) == 0 {
			to = position{buf: Out}
		}
		w.recvBlocks(g, parent, to, l.bytes, l.split(v, subtree(v, up, g.size), v-1<<up))
		if to.buf == Scratch {
			w.copy(position{buf: Out}, to, l.bytes)
		}
	}
	if child >= 0 {
		c := v + 1<<up
		l.sendSubtree(w, child, c, l.split(c, subtree(c, up, g.size), v))
	}
	if i == 0 && v == 0 {
		w.copy(l.ownTarget(), l.in.at(root), l.bytes)
	}
}

// sendSubtree sends the subtree of number c: at the root from the buffer of blocks, at other
// ranks from Scratch, which holds the own subtree.
func (l *Plan) sendSubtree(w *round, child, c int, pieces [2]int) {
	g := &l.all
	v := g.relative(l.p.Root)
	if v != 0 {
		w.sendBlocks(g, child, position{Scratch, l.bytes * int64(c-v)}, l.bytes, pieces)
		return
	}
	w.send(g, child, l.in.at(g.absolute(c, l.p.Root)), l.bytes*int64(pieces[0]))
	w.send(g, child, l.in.at(0), l.bytes*int64(pieces[1]))
}

func (l *Plan) linearScatter(w *round, i int) {
	g, root := &l.all, l.p.Root
	v := g.relative(root)
	if v != 0 {
		if (v-1)/linearWindow == i {
			w.recv(g, root, position{buf: Out}, l.bytes)
		}
		return
	}
	for c := 1 + i*linearWindow; c < min(1+(i+1)*linearWindow, g.size); c++ {
		to := g.absolute(c, root)
		w.send(g, to, l.in.at(to), l.in.len(to))
	}
	if i == 0 {
		w.copy(l.ownTarget(), l.in.at(root), l.in.len(root))
	}
}
