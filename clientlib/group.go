package outrigger

import (
	"cmp"
	"slices"
	"sort"
)

// group is the list of members of a communicator. Communicators with the same members share it. It
// does not change.
type group struct {
	size  int
	ranks []uint32 // world rank of each rank of the group; nil: the group is the world, where both are equal
	order []int32  // ranks of the group in the order of their world ranks; nil: ranks is already in that order
}

func newGroup(ranks []uint32) *group {
	g := &group{size: len(ranks), ranks: ranks}
	if slices.IsSorted(ranks) {
		return g
	}
	g.order = make([]int32, len(ranks))
	for i := range g.order {
		g.order[i] = int32(i)
	}
	slices.SortFunc(g.order, func(a, b int32) int { return cmp.Compare(ranks[a], ranks[b]) })
	return g
}

// world translates a rank into a world rank.
func (g *group) world(rank int) uint32 {
	if g.ranks == nil {
		return uint32(rank)
	}
	return g.ranks[rank]
}

// rankOf translates the world rank of a member into its rank.
func (g *group) rankOf(world uint32) int {
	switch {
	case g.ranks == nil:
		return int(world)
	case g.order == nil:
		i, _ := slices.BinarySearch(g.ranks, world)
		return i
	}
	i := sort.Search(g.size, func(i int) bool { return g.ranks[g.order[i]] >= world })
	return int(g.order[min(i, g.size-1)])
}
