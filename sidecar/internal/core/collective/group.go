package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
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
func (r *Room) initGroups() error {
	layout, err := coll.NewLayout(r.cfg.PodOf)
	if err != nil {
		return fmt.Errorf("core: %w", err)
	}
	all := make([]uint32, len(r.cfg.PodOf))
	for i := range all {
		all[i] = uint32(i)
	}
	r.world = &group{size: len(all), layout: layout, hash: hashRanks(all), refs: 1}
	r.groups = map[uint64][]*group{r.world.hash: {r.world}}
	return nil
}

// errGroups: there is no room for another group.
var errGroups = errors.New("the communicators of this pod have too many different lists of ranks")

// takeGroup returns the group of the ranks, which the caller may change
// afterwards.
func (r *Room) takeGroup(list []uint32) (*group, error) {
	hash := hashRanks(list)
	for _, g := range r.groups[hash] {
		if g.is(list) {
			g.refs++
			return g, nil
		}
	}
	cost := uint64(len(list) + memory.GroupFixed)
	if r.stats.Groups+cost > uint64(memory.GroupsMax(len(r.cfg.PodOf))) {
		return nil, errGroups
	}
	g := &group{ranks: slices.Clone(list), size: len(list), here: map[uint32]int32{}, hash: hash, refs: 1}
	pods, seen := make([]int32, len(list)), make([]uint64, (len(r.cfg.PodOf)+63)/64)
	for i, x := range list {
		if int(x) >= len(r.cfg.PodOf) || seen[x/64]>>(x%64)&1 != 0 {
			return nil, fmt.Errorf("rank %d is unknown or named twice", x)
		}
		seen[x/64] |= 1 << (x % 64)
		pods[i] = r.cfg.PodOf[x]
		if link.Peer(r.cfg.PodOf[x]) == r.cfg.Self {
			g.here[x] = int32(i)
		}
	}
	var err error
	if g.layout, err = coll.NewLayout(pods); err != nil {
		return nil, err
	}
	r.stats.Groups += cost
	r.groups[hash] = append(r.groups[hash], g)
	return g, nil
}

// dropGroup gives a group back; the last one to do so ends it.
func (r *Room) dropGroup(g *group) {
	if g.refs--; g.refs > 0 {
		return
	}
	r.stats.Groups -= uint64(len(g.ranks) + memory.GroupFixed)
	same := slices.DeleteFunc(r.groups[g.hash], func(x *group) bool { return x == g })
	if len(same) == 0 {
		delete(r.groups, g.hash)
		return
	}
	r.groups[g.hash] = same
}

// FreeComm ends a communicator of an application.
func (r *Room) FreeComm(s ranks.SessionID, context uint32) {
	b := r.members[s]
	if m := b.comms[context]; m != nil {
		delete(b.comms, context)
		r.dropGroup(m.group)
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
