package coll

import "fmt"

// Layout is the distribution of the ranks of a communicator over pods. It is made once for a
// communicator, shared by its plans, and never changes.
type Layout struct {
	pod     []int32 // each rank's pod, numbered in order of first appearance
	index   []int32 // each rank's number within its pod
	members []int32 // ranks, pod by pod, in rank order within each
	start   []int32 // for each pod, the index in members of its first member; one more entry at the end
	leaders []int32 // each pod's lowest rank
	largest int     // ranks in the largest pod
	// For an alltoall, pods are divided into slices of width ranks (slices.go), numbered pod by pod:
	// firstSlice has the number of each pod's first one; one more entry at the end. smallest is the
	// number of ranks of the smallest pod. Not set if no alltoall has two levels.
	firstSlice      []int32
	width, smallest int
	// ordered says that the ranks are pod by pod. If an allgather has two levels then, sizes and offsets
	// are the ranks of each pod, and the first one; one more entry at the end.
	ordered        bool
	sizes, offsets []int64
}

// NewLayout returns the layout in which rank i is in pod pods[i]. Pods may
// have any numbers, and their ranks need not be contiguous.
func NewLayout(pods []int32) (*Layout, error) {
	if len(pods) == 0 || len(pods) > MaxRanks {
		return nil, fmt.Errorf("coll: a layout of %d ranks is not between 1 and %d", len(pods), MaxRanks)
	}
	l := &Layout{pod: make([]int32, len(pods)), index: make([]int32, len(pods))}
	number := make(map[int32]int32)
	var sizes []int32
	n, seen := int32(0), false
	for rank, id := range pods {
		if rank == 0 || id != pods[rank-1] { // mostly the ranks of a pod are consecutive
			n, seen = number[id]
		}
		if !seen {
			n = int32(len(sizes))
			number[id], seen = n, true
			sizes = append(sizes, 0)
			l.leaders = append(l.leaders, int32(rank))
		}
		l.pod[rank] = n
		l.index[rank] = sizes[n]
		sizes[n]++
	}
	l.listMembers(sizes)
	l.setSlices()
	return l, nil
}

// listMembers lists the members of each pod.
func (l *Layout) listMembers(sizes []int32) {
	l.start = make([]int32, len(sizes)+1)
	for i, n := range sizes {
		l.start[i+1] = l.start[i] + n
		l.largest = max(l.largest, int(n))
	}
	l.members = make([]int32, len(l.pod))
	l.ordered = true
	for rank, pod := range l.pod {
		at := l.start[pod] + l.index[rank]
		l.members[at] = int32(rank)
		l.ordered = l.ordered && int(at) == rank
	}
	if !l.gathers() {
		return
	}
	l.sizes, l.offsets = make([]int64, len(sizes)), make([]int64, len(sizes)+1)
	for i, n := range sizes {
		l.sizes[i], l.offsets[i+1] = int64(n), int64(l.start[i+1])
	}
}

// gathers reports whether an allgather can have two levels: the blocks of a pod follow each other.
func (l *Layout) gathers() bool { return l.pays() && l.ordered }

// blocks returns the partition of a buffer with a block of so many bytes for each rank, one part a
// pod.
func (l *Layout) blocks(base position, bytes int64) partition {
	return partition{base: base, counts: l.sizes, displs: l.offsets, elem: bytes}
}

// pods returns the number of pods; without a layout it is 1.
func (l *Layout) pods() int {
	if l == nil {
		return 1
	}
	return len(l.leaders)
}

// pays reports whether two levels differ from one level.
func (l *Layout) pays() bool { return l != nil && l.pods() > 1 && l.largest > 1 }

// equal reports whether the pods have several ranks, and as many each.
func (l *Layout) equal() bool { return l.pays() && l.largest*l.pods() == len(l.pod) }

// column returns the ranks with the index of rank, one of each pod. The layout is equal.
func (l *Layout) column(rank int) group {
	return group{rank: int(l.pod[rank]), size: l.pods(), members: l.members[l.index[rank]:], skip: l.largest - 1}
}

// inOrder returns all ranks, pod by pod.
func (l *Layout) inOrder(rank int) group {
	return group{rank: int(l.start[l.pod[rank]] + l.index[rank]), size: len(l.members), members: l.members}
}

// podOf returns the ranks of the pod that rank is in.
func (l *Layout) podOf(rank int) group {
	pod := l.pod[rank]
	return group{
		rank:    int(l.index[rank]),
		size:    int(l.start[pod+1] - l.start[pod]),
		members: l.members[l.start[pod]:l.start[pod+1]],
	}
}

// leadersWith returns one rank of each pod, as seen from the pod of rank. If there is a root,
// it leads its pod, which saves one message.
func (l *Layout) leadersWith(root, rank int) group {
	g := group{rank: int(l.pod[rank]), size: l.pods(), members: l.leaders}
	if at := l.pod[root]; l.leaders[at] != int32(root) {
		g.members = append([]int32(nil), l.leaders...)
		g.members[at] = int32(root)
	}
	return g
}
