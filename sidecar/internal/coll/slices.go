package coll

import "slices"

// An alltoall in two levels divides the ranks of every pod into slices. All blocks of a pod for a
// slice of another one are one message, which a rank of the pod, the carrier of the slice, sends to a
// rank of the other pod. So as many messages leave a pod as other pods have slices. With wide
// slices the carriers need much scratch memory: a layout has the widest slices that fit into what
// clients allocate.

// slice is a part of the ranks of a pod.
type slice struct {
	pod, number int // number is that in the pod
	first, end  int // numbers in the pod of the first rank and of the one behind the last
}

func (s slice) width() int { return s.end - s.first }

// has reports whether a rank of the pod is in the slice.
func (s slice) has(rank int) bool { return s.first <= rank && rank < s.end }

// setSlices divides the pods.
func (l *Layout) setSlices() {
	if !l.pays() || len(l.pod) > packedRanksMax {
		return // no alltoall has two levels
	}
	fits, most := 1, l.largest
	for try := most; fits < most; try = (fits + most + 1) / 2 {
		if l.carries(try) {
			fits = try
		} else {
			most = try - 1
		}
	}
	l.width, l.smallest = fits, l.largest
	l.firstSlice = make([]int32, l.pods()+1)
	for pod := range l.pods() {
		l.smallest = min(l.smallest, l.ranks(pod))
		l.firstSlice[pod+1] = l.firstSlice[pod] + int32(l.slicesIn(pod))
	}
}

// carries reports whether slices of a width need at most three blocks of scratch memory for each
// rank, which shm.CollScratch grants for an alltoall, and take not too many steps in a round. Slices
// of one rank do.
func (l *Layout) carries(width int) bool {
	many, largest, second := 0, 0, 0 // slices, and the ranks of the largest two pods
	for pod := range l.pods() {
		n := l.ranks(pod)
		many += slicesOf(n, width)
		second = max(second, min(n, largest))
		largest = max(largest, n)
	}
	for pod := range l.pods() {
		n, other := l.ranks(pod), largest
		if n == largest {
			other = second
		}
		own := slicesOf(n, width)
		out := n * min(width, other) * ((many - own + n - 1) / n)
		in := other * min(width, n) * (((l.pods()-1)*own + n - 1) / n)
		arrived, sorted := max(n+out, in, len(l.pod)-n), max(out, in)
		if arrived > 2*len(l.pod) || arrived+sorted > 3*len(l.pod) {
			return false
		}
	}
	return true
}

// slicesOf returns the number of slices of so many ranks.
func slicesOf(ranks, width int) int { return (ranks + width - 1) / width }

// slicesIn returns the number of slices of a pod.
func (l *Layout) slicesIn(pod int) int { return slicesOf(l.ranks(pod), l.width) }

// slice returns a slice of a pod.
func (l *Layout) slice(pod, number int) slice {
	first := number * l.width
	return slice{pod, number, first, min(first+l.width, l.ranks(pod))}
}

// ranks returns the number of ranks of a pod.
func (l *Layout) ranks(pod int) int { return int(l.start[pod+1] - l.start[pod]) }

// distance returns how many pods one is behind another.
func (l *Layout) distance(from, to int) int {
	if to < from {
		to += l.pods()
	}
	return to - from
}

// carried returns number i of the slices of all other pods, from those of the next pod on. The ranks
// of a pod carry them in turn.
func (l *Layout) carried(pod, i int) slice {
	at, all := int32(i)+l.firstSlice[pod+1], l.firstSlice[l.pods()]
	if at >= all {
		at -= all
	}
	of, found := slices.BinarySearch(l.firstSlice, at)
	if !found {
		of--
	}
	return l.slice(of, int(at-l.firstSlice[of]))
}

// carriedCount returns the number of slices that the ranks of a pod carry.
func (l *Layout) carriedCount(pod int) int { return int(l.firstSlice[l.pods()]) - l.slicesIn(pod) }

// carrier returns the rank of a pod that sends the blocks for a slice of another pod.
func (l *Layout) carrier(pod int, s slice) int {
	i := int(l.firstSlice[s.pod]-l.firstSlice[pod+1]) + s.number
	if i < 0 {
		i += int(l.firstSlice[l.pods()])
	}
	return l.member(pod, i)
}

// incoming returns the pod and the slice of number i of the messages for a pod, from those of the pod
// before it on. The ranks of the pod receive them in turn.
func (l *Layout) incoming(pod, i int) (from int, s slice) {
	n := l.slicesIn(pod)
	if from = pod - 1 - i/n; from < 0 {
		from += l.pods()
	}
	return from, l.slice(pod, i%n)
}

// incomingCount returns the number of messages for a pod.
func (l *Layout) incomingCount(pod int) int { return (l.pods() - 1) * l.slicesIn(pod) }

// receiver returns the rank that receives the blocks of a pod for a slice of another one.
func (l *Layout) receiver(from int, s slice) int {
	return l.member(s.pod, (l.distance(from, s.pod)-1)*l.slicesIn(s.pod)+s.number)
}

// member returns the rank of a pod to which number i falls if its ranks take turns.
func (l *Layout) member(pod, i int) int {
	return int(l.members[int(l.start[pod])+i%l.ranks(pod)])
}

// membersOf returns the ranks of a pod with the numbers first to end-1.
func (l *Layout) membersOf(pod, first, end int) []int32 {
	return l.members[int(l.start[pod])+first : int(l.start[pod])+end]
}
