package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// group is the ranks of a communicator. Communicators of this sidecar's
// applications with the same ranks in the same order share one: in a large job
// it is what a communicator costs.
type group struct {
	ranks  []uint32 // world ranks in communicator order; nil: all of them
	size   int
	layout *coll.Layout
	here   map[uint32]int32 // places of the ranks that are hosted here; nil: their own numbers
	hash   uint64
	refs   int
}

// rank is the world rank at a place.
func (g *group) rank(place int32) uint32 {
	if g.ranks == nil {
		return uint32(place)
	}
	return g.ranks[place]
}

// place is where a hosted rank is in the group, -1: nowhere.
func (g *group) place(rank uint32) int {
	if g.ranks == nil {
		return int(rank)
	}
	if at, ok := g.here[rank]; ok {
		return int(at)
	}
	return -1
}

func (g *group) is(ranks []uint32) bool {
	if g.ranks != nil {
		return slices.Equal(g.ranks, ranks)
	}
	for i, r := range ranks {
		if r != uint32(i) {
			return false
		}
	}
	return len(ranks) == g.size
}

// initGroups makes the group of the world.
func (c *Core) initGroups() error {
	layout, err := coll.NewLayout(c.cfg.PodOf)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	all := make([]uint32, len(c.cfg.PodOf))
	for i := range all {
		all[i] = uint32(i)
	}
	c.world = &group{size: len(all), layout: layout, hash: hashRanks(all), refs: 1}
	c.groups = map[uint64][]*group{c.world.hash: {c.world}}
	return nil
}

// errGroups: there is no room for another group.
var errGroups = errors.New("the communicators of this pod have too many different lists of ranks")

// takeGroup returns the group of the ranks, which the caller may change
// afterwards.
func (c *Core) takeGroup(ranks []uint32) (*group, error) {
	hash := hashRanks(ranks)
	for _, g := range c.groups[hash] {
		if g.is(ranks) {
			g.refs++
			return g, nil
		}
	}
	cost := uint64(len(ranks) + memory.GroupFixed)
	if c.grouped+cost > uint64(memory.GroupsMax(len(c.cfg.PodOf))) {
		return nil, errGroups
	}
	g := &group{ranks: slices.Clone(ranks), size: len(ranks), here: map[uint32]int32{}, hash: hash, refs: 1}
	pods, seen := make([]int32, len(ranks)), make([]uint64, (len(c.cfg.PodOf)+63)/64)
	for i, r := range ranks {
		if int(r) >= len(c.cfg.PodOf) || seen[r/64]>>(r%64)&1 != 0 {
			return nil, fmt.Errorf("rank %d is unknown or named twice", r)
		}
		seen[r/64] |= 1 << (r % 64)
		pods[i] = c.cfg.PodOf[r]
		if c.endpoints[r] != nil {
			g.here[r] = int32(i)
		}
	}
	var err error
	if g.layout, err = coll.NewLayout(pods); err != nil {
		return nil, err
	}
	c.grouped += cost
	c.groups[hash] = append(c.groups[hash], g)
	return g, nil
}

// dropGroup gives a group back; the last one to do so ends it.
func (c *Core) dropGroup(g *group) {
	if g.refs--; g.refs > 0 {
		return
	}
	c.grouped -= uint64(len(g.ranks) + memory.GroupFixed)
	same := slices.DeleteFunc(c.groups[g.hash], func(x *group) bool { return x == g })
	if len(same) == 0 {
		delete(c.groups, g.hash)
		return
	}
	c.groups[g.hash] = same
}

// dropComm ends a communicator of an application.
func (c *Core) dropComm(s *session, context uint32) {
	if m := s.comms[context]; m != nil {
		delete(s.comms, context)
		c.dropGroup(m.group)
	}
}

// hashRanks only spreads: what it finds is compared. Four sums side by side keep
// the processor busy.
func hashRanks(ranks []uint32) uint64 {
	const odd = 0x9e3779b97f4a7c15
	var h [4]uint64
	for i, r := range ranks {
		k := i & 3
		h[k] = (h[k] ^ uint64(r)) * odd
		h[k] ^= h[k] >> 29
	}
	sum := uint64(len(ranks))
	for _, x := range h {
		sum = (sum ^ x) * odd
		sum ^= sum >> 32
	}
	return sum
}
