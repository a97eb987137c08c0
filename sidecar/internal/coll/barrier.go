package coll

// disseminate adds round i of a dissemination barrier (Hensgen, Finkel and Manber 1988): a
// signal to the rank 2^i ahead, and one from the rank 2^i behind.
func disseminate(w *round, g *group, i int) {
	w.signal(g, g.wrap(g.rank+1<<i))
	w.await(g, g.wrap(g.rank-1<<i))
}

// fanIn adds round i of a binomial tree of signals to the root.
func fanIn(w *round, g *group, root, i int) {
	parent, child := treeUp(g, root, i)
	if parent >= 0 {
		w.signal(g, parent)
	}
	if child >= 0 {
		w.await(g, child)
	}
}

// fanOut adds round i of a binomial tree of signals from the root.
func fanOut(w *round, g *group, root, i int) {
	parent, child := treeDown(g, root, i)
	if parent >= 0 {
		w.await(g, parent)
	}
	if child >= 0 {
		w.signal(g, child)
	}
}
