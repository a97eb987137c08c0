package coll

import "math/bits"

// group is a set of ranks that run a schedule among themselves, numbered from
// 0: the whole communicator, the ranks of one pod, or one rank of each pod.
type group struct {
	rank, size int
	members    []int32 // comm rank by number; nil if they are the same
	skip       int     // members between one of the group and the next one
}

func (g *group) peer(i int) int32 {
	if g.members == nil {
		return int32(i)
	}
	return g.members[i*(1+g.skip)]
}

// relative numbers the ranks from the root on; absolute is its inverse.
func (g *group) relative(root int) int { return g.wrap(g.rank - root) }

func (g *group) absolute(v, root int) int { return g.wrap(v + root) }

// wrap brings a number between -size and 2*size-1 into the group.
func (g *group) wrap(i int) int {
	switch {
	case i < 0:
		return i + g.size
	case i >= g.size:
		return i - g.size
	}
	return i
}

// levels returns the number of rounds in which something that doubles every
// round reaches n ranks.
func levels(n int) int { return bits.Len(uint(n - 1)) }

// floorPower returns the largest power of two that is at most n.
func floorPower(n int) int { return 1 << (bits.Len(uint(n)) - 1) }
