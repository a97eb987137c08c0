// Package alloc chooses which of several devices a container gets.
//
// The kubelet asks for one resource at a time. It does not say for which container it asks,
// nor which devices of other resources that container got. An HCA and a copy-engine channel on
// one NUMA node are therefore joined in one of two ways:
//
//   - with the kubelet's topology manager (policies restricted and
//     single-numa-node), the kubelet joins the hints of all resources first and
//     offers only devices of the nodes that it chose;
//   - without it (policies none and best-effort), the NUMA nodes of the last
//     allocations of other resources are used as a guess, because the kubelet
//     admits one pod at a time. A wrong guess costs only locality.
//
// (Kubernetes documentation, "Control Topology Management Policies on a node" and "Device
// Plugins", GetPreferredAllocation.)
package alloc

import (
	"cmp"
	"container/heap"
	"slices"
)

// Candidate is a device that may be chosen.
type Candidate struct {
	ID string
	// NUMA is the device's NUMA node; negative if it is not known.
	NUMA int
	// Hardware names the device of the candidate. Shares of one device have the same value. It
	// may be equal to ID.
	Hardware string
}

// Request is one request of the kubelet.
type Request struct {
	Available []Candidate
	Must      []string // IDs that must be in the answer; a subset of Available
	Size      int      // number of devices in the answer
	// Near are the NUMA nodes of the devices that the same container probably holds.
	Near []int
	// Partners counts the devices of the other kinds on each NUMA node.
	Partners map[int]int
	// Spread asks for the devices with the fewest users: of shared devices, those with the
	// most shares left.
	Spread bool
}

// Prefer returns Size of the available IDs, the required ones first. In descending weight, the
// answer
//
//  1. has the required devices,
//  2. touches few NUMA nodes: those of the required devices before others, then
//     those of devices that the container holds, then those with enough free
//     devices, then those with a free partner device, then the one with the
//     fewest free devices, so that large requests find a whole node later; to
//     spread, the one with the most,
//  3. spreads over hardware, so that shares of one device go to one container
//     only when there is nothing else; to spread, to the hardware with the most
//     shares left.
//
// If fewer than Size are available, Prefer returns fewer. The kubelet then decides itself, and
// fails the pod with its own message.
func Prefer(r *Request) []string {
	c := &choice{request: r, used: map[string]int{}, left: map[string]int{}, chosen: map[string]bool{}}
	for _, d := range r.Available {
		c.left[d.Hardware]++
	}
	required, must := map[int]int{}, map[string]bool{}
	for _, id := range r.Must {
		must[id] = true
	}
	for _, d := range r.Available {
		if must[d.ID] && len(c.answer) < r.Size {
			required[d.NUMA]++
			c.choose(d)
		}
	}
	for len(c.answer) < r.Size {
		free := c.freeByNode()
		if len(free) == 0 {
			break
		}
		node := c.bestNode(free, required)
		c.fill(free[node])
	}
	return c.answer
}

// choice is an answer under construction.
type choice struct {
	request *Request
	answer  []string
	chosen  map[string]bool
	used    map[string]int // number of chosen devices of each piece of hardware
	left    map[string]int // number of devices of each piece of hardware that are not chosen yet
}

// choose adds a device to the answer.
func (c *choice) choose(d Candidate) {
	c.answer = append(c.answer, d.ID)
	c.chosen[d.ID] = true
	c.used[d.Hardware]++
	c.left[d.Hardware]--
}

func (c *choice) freeByNode() map[int][]Candidate {
	free := map[int][]Candidate{}
	for _, d := range c.request.Available {
		if !c.chosen[d.ID] {
			free[d.NUMA] = append(free[d.NUMA], d)
		}
	}
	return free
}

// bestNode ranks the nodes. Devices whose NUMA node is not known form a node of their own,
// which ranks last.
func (c *choice) bestNode(free map[int][]Candidate, required map[int]int) int {
	need := c.request.Size - len(c.answer)
	type rank struct{ node, unknown, required, near, small, partner, free int }
	ranks := make([]rank, 0, len(free))
	for node, devices := range free {
		ranks = append(ranks, rank{
			node: node, unknown: flag(node < 0), required: flag(required[node] == 0),
			near: flag(!slices.Contains(c.request.Near, node)), small: flag(len(devices) < need),
			partner: flag(c.request.Partners[node] == 0), free: len(devices),
		})
	}
	best := slices.MinFunc(ranks, func(a, b rank) int {
		size := cmp.Compare(a.free, b.free)
		if a.small == 1 || c.request.Spread {
			size = -size // if all nodes are too small, the largest one needs the fewest others
		}
		return cmp.Or(
			cmp.Compare(a.required, b.required), cmp.Compare(a.near, b.near), cmp.Compare(a.unknown, b.unknown),
			cmp.Compare(a.small, b.small), cmp.Compare(a.partner, b.partner), size, cmp.Compare(a.node, b.node),
		)
	})
	return best.node
}

// flag returns 1 if the argument, which speaks against a node, is true, and 0 otherwise.
func flag(against bool) int {
	if against {
		return 1
	}
	return 0
}

// stack has the free devices of one piece of hardware on a node; the next one to choose is on
// top.
type stack struct {
	choice *choice
	free   []Candidate // free devices, sorted by ID
}

// stacks is a heap with the hardware to choose next on top. A choice changes the rank of one
// piece of hardware only, so that each choice takes logarithmic time.
type stacks []*stack

func (s stacks) Len() int      { return len(s) }
func (s stacks) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *stacks) Push(x any)   { *s = append(*s, x.(*stack)) } //nolint:forcetypeassert // only stacks are pushed
func (s *stacks) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// Less orders hardware by how much of it has been used, and then by how much is left.
func (s stacks) Less(i, j int) bool {
	c, a, b := s[i].choice, &s[i].free[0], &s[j].free[0]
	left := 0
	if c.request.Spread {
		left = cmp.Compare(c.left[b.Hardware], c.left[a.Hardware])
	}
	return cmp.Or(cmp.Compare(c.used[a.Hardware], c.used[b.Hardware]), left, cmp.Compare(a.ID, b.ID)) < 0
}

// fill takes devices of one node until the answer is complete or the node has none left, each
// time from the hardware of which the fewest devices have been chosen.
func (c *choice) fill(free []Candidate) {
	by := map[string]*stack{}
	for _, d := range free {
		s := by[d.Hardware]
		if s == nil {
			s = &stack{choice: c}
			by[d.Hardware] = s
		}
		s.free = append(s.free, d)
	}
	order := make(stacks, 0, len(by))
	for _, s := range by {
		slices.SortFunc(s.free, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
		order = append(order, s)
	}
	heap.Init(&order)
	for len(order) > 0 && len(c.answer) < c.request.Size {
		first := order[0]
		c.choose(first.free[0])
		if first.free = first.free[1:]; len(first.free) == 0 {
			heap.Pop(&order)
			continue
		}
		heap.Fix(&order, 0)
	}
}
