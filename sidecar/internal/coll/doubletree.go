package coll

// Two binary trees serve a long bcast or reduce, each with one half of the vector in segments
// (Sanders, Speck and Träff 2009). The root is above both trees. A rank that has children in one
// tree is a leaf of the other one, so that none sends more than the vector, and none but the root
// receives more in a reduce. The depth is that of a binomial tree, of whose root all children are
// sent the whole vector.

const (
	// delayBytes is about what a link carries in the time that a round takes besides its bytes.
	delayBytes = 64 << 10
	// segmentsMax bounds the rounds. Then trees of depth 10 are filled most of the time.
	segmentsMax = 128
)

// doubleTree is the part of a rank. Ranks are numbered from the root on: the trees have the numbers
// from 1 on, and 0 is above them.
type doubleTree struct {
	group    *group
	root     int
	nodes    int // of each tree
	segments int // of each half
	depth    int // rounds from the root to the last rank
	halves   partition
	elem     int64
}

func newDoubleTree(g *group, root int, count, elem int64) doubleTree {
	t := doubleTree{group: g, root: root, nodes: g.size - 1, depth: levels(g.size), elem: elem}
	t.halves = even(position{}, count, elem, 2)
	// S segments take depth+S-1 rounds of bytes/S: the time is least if S*S is about this.
	square := int64(t.depth) * (count * elem / delayBytes)
	for t.segments = 2; t.segments < segmentsMax && int64(t.segments*t.segments) < square; {
		t.segments++
	}
	return t
}

func (t *doubleTree) rounds() int { return t.depth + t.segments - 1 }

// segment returns the bytes of segment k of a half, which are none if k is out of range.
func (t *doubleTree) segment(half, k int) (off, bytes int64) {
	if k < 0 || k >= t.segments {
		return 0, 0
	}
	s := even(position{}, t.halves.len(half)/t.elem, t.elem, t.segments)
	return t.halves.off(half) + s.off(k), s.len(k)
}

// longest returns the bytes of the longest segment of a half.
func (t *doubleTree) longest(half int) int64 {
	_, bytes := t.segment(half, 0)
	return bytes
}

// number returns the number in the second tree of number v of the first one, and the inverse: the
// even numbers of each tree, which have children, are odd in the other one.
func (t *doubleTree) number(v int, inverse bool) int {
	switch {
	case t.nodes&1 == 0:
		return t.nodes + 1 - v
	case !inverse:
		return v%t.nodes + 1
	case v == 1:
		return t.nodes
	}
	return v - 1
}

// treePlace is the place of a rank in a tree. Its neighbours are numbers of the group, or -1.
type treePlace struct {
	parent   int
	children [2]int
	depth    int // 0: the root
}

func (p *treePlace) leaf() bool { return p.children == [2]int{-1, -1} }

// place returns the place of the own rank in the tree of a half. The children of number v whose
// lowest set bit is 2^k are v-2^(k-1) and v+2^(k-1), or the largest subtree there that exists.
func (t *doubleTree) place(half int) treePlace {
	rank := func(v int) int {
		if half == 1 && v > 0 {
			v = t.number(v, true)
		}
		return t.group.absolute(v, t.root)
	}
	v, top := t.group.relative(t.root), floorPower(t.nodes)
	if v == 0 {
		return treePlace{parent: -1, children: [2]int{rank(top), -1}}
	}
	if half == 1 {
		v = t.number(v, false)
	}
	parent, at, depth := 0, top, 1
	for at != v {
		left, right := t.below(at)
		parent, depth = at, depth+1
		if at = left; v > parent {
			at = right
		}
	}
	p := treePlace{parent: rank(parent), children: [2]int{-1, -1}, depth: depth}
	left, right := t.below(v)
	if left > 0 {
		p.children[0] = rank(left)
	}
	if right > 0 {
		p.children[1] = rank(right)
	}
	return p
}

// below returns the children of a number in a tree, or 0.
func (t *doubleTree) below(v int) (left, right int) {
	bit := v & -v >> 1
	if bit == 0 {
		return 0, 0
	}
	left = v - bit
	for ; bit > 0; bit >>= 1 {
		if v+bit <= t.nodes {
			return left, v + bit
		}
	}
	return left, 0
}

// broadcast adds round i of a broadcast of Out: a segment arrives one round after the one before
// it, and goes on in the next round.
func (t *doubleTree) broadcast(w *round, i int) {
	out := position{buf: Out}
	for half := range 2 {
		p := t.place(half)
		if p.parent >= 0 {
			off, bytes := t.segment(half, i-p.depth+1)
			w.recv(t.group, p.parent, out.plus(off), bytes)
		}
		off, bytes := t.segment(half, i-p.depth)
		for _, child := range p.children {
			if child >= 0 {
				w.send(t.group, child, out.plus(off), bytes)
			}
		}
	}
}

// reduce adds round i of a reduction, whose rounds are those of a broadcast in reverse.
func (t *doubleTree) reduce(w *round, v *vector, i int) {
	operand := *v
	for half := range 2 {
		p := t.place(half)
		if p.parent >= 0 {
			off, bytes := t.segment(half, i-t.depth+p.depth)
			w.send(t.group, p.parent, v.own(p.leaf()).plus(off), bytes)
		}
		off, bytes := t.segment(half, i-t.depth+p.depth+1)
		fresh := true
		for _, child := range p.children {
			if child < 0 {
				continue
			}
			w.merge(t.group, child, &operand, off, bytes, fresh, false)
			if v.inPlace() { // no operand has been received in acc
				operand.tmp = operand.tmp.plus(bytes)
			}
			fresh = false
		}
	}
}

// reduceScratch returns the bytes of the accumulator, unless it is in Out, and of operands.
func (t *doubleTree) reduceScratch(atRoot, inPlace bool) int64 {
	if atRoot {
		if inPlace {
			return t.longest(0) + t.longest(1)
		}
		return 0
	}
	scratch := int64(0)
	for half := range 2 {
		if p := t.place(half); !p.leaf() {
			scratch = t.halves.total
			if p.children[1] >= 0 {
				scratch += t.longest(half)
			}
			return scratch
		}
	}
	return scratch
}
