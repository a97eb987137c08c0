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

// group is the list of ranks of a communicator. All communicators of this sidecar's
// applications with the same list share one group, because in a large job the list is most
// of a communicator's memory.
type group struct {
	ranks  []uint32 // world ranks in communicator order; nil: all of them
	size   int
	layout *coll.Layout
	here   map[uint32]int32 // index of each hosted rank; nil: its own number
	hash   uint64
	refs   int
	maker  *int64 // what the rank that has made it has in Room.lists
}

// cost returns what the group takes of Room.lists.
func (g *group) cost() int64 { return int64(len(g.ranks) + memory.GroupFixed) }

// rank returns the world rank at an index.
func (g *group) rank(index int32) uint32 {
	if g.ranks == nil {
		return uint32(index)
	}
	return g.ranks[index]
}

// index returns the index of a hosted rank; -1: it is not in the group.
func (g *group) index(rank uint32) int {
	if g.ranks == nil {
		return int(rank)
	}
	if at, ok := g.here[rank]; ok {
		return int(at)
	}
	return -1
}

// hasRanks reports whether the group has exactly this list.
func (g *group) hasRanks(ranks []uint32) bool {
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

// initGroups creates the group of all ranks.
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

// errGroups is returned if another group would exceed Room.lists.
var errGroups = errors.New("the communicators of this pod have too many different lists of ranks")

// acquireGroup returns the group of a list with a reference for the caller, who may change
// the list afterwards. A new one counts until it is freed for the rank that has made it, which has
// maker of Room.lists: a rank that others name in their lists does not lose its share by that.
func (r *Room) acquireGroup(list []uint32, maker *int64) (*group, error) {
	hash := hashRanks(list)
	for _, g := range r.groups[hash] {
		if g.hasRanks(list) {
			g.refs++
			return g, nil
		}
	}
	if !r.lists.Fits(*maker, int64(len(list)+memory.GroupFixed)) {
		return nil, errGroups
	}
	g := &group{ranks: slices.Clone(list), size: len(list), here: map[uint32]int32{}, hash: hash, refs: 1, maker: maker}
	pods, seen := make([]int32, len(list)), make([]uint64, (len(r.cfg.PodOf)+63)/64)
	for i, x := range list {
		if int(x) >= len(r.cfg.PodOf) || seen[x/64]>>(x%64)&1 != 0 {
			return nil, fmt.Errorf("rank %d is not in the job or twice in the list", x)
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
	r.lists.Add(maker, g.cost())
	r.groups[hash] = append(r.groups[hash], g)
	return g, nil
}

// releaseGroup releases a reference; the last one frees the group.
func (r *Room) releaseGroup(g *group) {
	if g.refs--; g.refs > 0 {
		return
	}
	r.lists.Add(g.maker, -g.cost())
	same := slices.DeleteFunc(r.groups[g.hash], func(x *group) bool { return x == g })
	if len(same) == 0 {
		delete(r.groups, g.hash)
		return
	}
	r.groups[g.hash] = same
}

// FreeComm frees a communicator of an application.
func (r *Room) FreeComm(s ranks.SessionID, context uint32) {
	b := r.members[s]
	if m := b.comms[context]; m != nil {
		delete(b.comms, context)
		r.releaseGroup(m.group)
		if context != 0 { // the world exists from the start
			b.session.Refund(memory.CommCost)
		}
	}
}

// hashRanks returns a hash of a list; hasRanks compares the lists behind equal hashes. Four
// independent sums let the processor run their multiplications in parallel.
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
