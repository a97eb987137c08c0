package coll

import "math/bits"

func (l *Plan) bcastSize() (rounds int, scratch int64) {
	return broadcastRounds(&l.all, l.algorithm, int64(l.p.Count), int64(l.p.Elem)), 0
}

func (l *Plan) bcast(w *round, i int) {
	broadcast(w, &l.all, l.algorithm, l.p.Root, int64(l.p.Count), int64(l.p.Elem), i)
}

// broadcast adds round i of a broadcast of Out within a group.
func broadcast(w *round, g *group, a Algorithm, root int, count, elem int64, i int) {
	switch a {
	case ScatterAllgather:
		scatterAllgather(w, g, root, count, elem, i)
	case DoubleTree:
		t := newDoubleTree(g, root, count*elem, 1) // ranks may give the same bytes in other elements
		t.broadcast(w, i)
	default:
		binomialBcast(w, g, root, count*elem, i)
	}
}

func broadcastRounds(g *group, a Algorithm, count, elem int64) int {
	switch a {
	case ScatterAllgather:
		return levels(g.size) + g.size - 1
	case DoubleTree:
		t := newDoubleTree(g, 0, count*elem, 1)
		return t.rounds()
	}
	return levels(g.size)
}

// togetherBytes is the largest vector that an inner rank of a tree starts to send to all its
// children at once. A round ends when its messages have arrived: if each child had a round,
// the second child would wait for the acknowledgement of the first one. Larger vectors would
// share the wire, and the child with the deepest subtree would have its vector later.
const togetherBytes = 16 << 10

// binomialBcast adds round i of a broadcast down a binomial tree. A message has the tag of the
// round in which its receiver waits for it, in whatever round it is sent.
func binomialBcast(w *round, g *group, root int, bytes int64, i int) {
	out := position{buf: Out}
	parent, child := treeDown(g, root, i)
	if parent >= 0 {
		w.recv(g, parent, out, bytes)
	}
	if bytes > togetherBytes {
		if child >= 0 {
			w.send(g, child, out, bytes)
		}
		return
	}
	if i != firstSend(g, root) {
		return
	}
	tag := w.tag
	for k := i; k < levels(g.size); k++ {
		if _, child := treeDown(g, root, k); child >= 0 {
			w.send(g, child, out, bytes)
		}
		w.tag++
	}
	w.tag = tag
}

// firstSend returns the first round in which a rank can send down the tree: 0 for the root,
// and the round after the receive for other ranks.
func firstSend(g *group, root int) int {
	if v := g.relative(root); v != 0 {
		return levels(g.size) - bits.TrailingZeros(uint(v))
	}
	return 0
}

// scatterAllgather adds round i of the broadcast of van de Geijn: the vector is divided into
// one chunk for each rank, which are scattered down a binomial tree and gathered in a ring.
// Each rank sends and receives about twice the vector, however many ranks there are.
func scatterAllgather(w *round, g *group, root int, count, elem int64, i int) {
	part := even(position{buf: Out}, count, elem, g.size)
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
