package coll

// The binomial tree: ranks are numbered from the root on, and the subtree of
// a number v whose lowest set bit is 2^k is v to v+2^k-1. Each subtree is
// thus contiguous, which scatter, gather and ordered reductions rely on.

// treeUp returns the partners of round i on the way to the root: the parent to which this rank
// sends, or the child that sends to it, or -1 for none.
func treeUp(g *group, root, i int) (parent, child int) {
	if i >= levels(g.size) {
		return -1, -1
	}
	v, bit := g.relative(root), 1<<i
	switch {
	case v&(bit-1) != 0:
	case v&bit != 0:
		return g.absolute(v-bit, root), -1
	case v+bit < g.size:
		return -1, g.absolute(v+bit, root)
	}
	return -1, -1
}

// treeDown returns the partners of treeUp with the rounds reversed.
func treeDown(g *group, root, i int) (parent, child int) {
	if i >= levels(g.size) {
		return -1, -1
	}
	return treeUp(g, root, levels(g.size)-1-i)
}

// treeChildren returns the number of children of v in a tree of n.
func treeChildren(v, n int) int {
	children := 0
	for bit := 1; v&bit == 0 && v+bit < n; bit <<= 1 {
		children++
	}
	return children
}

// subtree returns the end of the subtree of v after the rounds of its children below 2^i.
func subtree(v, i, n int) int { return min(v+1<<i, n) }
