package coll

func (l *Plan) bcastSize() (rounds int, scratch int64) {
	return broadcastRounds(l.algorithm, l.p.Size), 0
}

func (l *Plan) bcast(w *round, i int) {
	broadcast(w, &l.all, l.algorithm, l.p.Root, int64(l.p.Count), int64(l.p.Elem), i)
}

// broadcast is round i of a broadcast of Out within a group.
func broadcast(w *round, g *group, a Algorithm, root int, count, elem int64, i int) {
	if a == ScatterAllgather {
		scatterAllgather(w, g, root, count, elem, i)
		return
	}
	binomialBcast(w, g, root, count*elem, i)
}

func broadcastRounds(a Algorithm, ranks int) int {
	if a == ScatterAllgather {
		return levels(ranks) + ranks - 1
	}
	return levels(ranks)
}

func binomialBcast(w *round, g *group, root int, bytes int64, i int) {
	out := place{buf: Out}
	parent, child := treeDown(g, root, i)
	if parent >= 0 {
		w.recv(g, parent, out, bytes)
	}
	if child >= 0 {
		w.send(g, child, out, bytes)
	}
}

// scatterAllgather is the broadcast of van de Geijn: the vector is cut into
// one chunk a rank, scattered down a binomial tree and gathered in a ring.
// Each rank sends and receives about twice the vector, however many there are.
func scatterAllgather(w *round, g *group, root int, count, elem int64, i int) {
	part := even(place{buf: Out}, count, elem, g.size)
	if n := levels(g.size); i >= n {
		v := g.relative(root)
		ringAllgather(w, g, root, &part, part.at(v), i-n)
		return
	}
	up := levels(g.size) - 1 - i
	parent, child := treeDown(g, root, i)
	v := g.relative(root)
	if parent >= 0 {
		w.recv(g, parent, part.at(v), part.span(v, subtree(v, up, g.size)))
	}
	if child >= 0 {
		c := v + 1<<up
		w.send(g, child, part.at(c), part.span(c, subtree(c, up, g.size)))
	}
}
