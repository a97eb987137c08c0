package onesided

// holder is a rank that holds the lock of a window.
type holder struct {
	rank  uint32
	times int   // a rank may have several shared locks
	since int64 // when it got the first of them
}

// holders are the ranks that hold the lock of a window. Their order depends on the calls only, so
// that a large list is given back in the same steps each time.
type holders struct {
	list []holder
	at   map[uint32]int32 // index in list by rank; nil: no rank has held the lock
}

// holdersKept is the list that an unlocked window keeps, so that a lock allocates nothing.
const holdersKept = 16

// Len returns the number of ranks.
func (x *holders) Len() int { return len(x.list) }

// times returns how often a rank holds the lock.
func (x *holders) times(rank uint32) int {
	if i, ok := x.at[rank]; ok {
		return x.list[i].times
	}
	return 0
}

// add counts a lock of a rank. It reports whether the rank held none.
func (x *holders) add(rank uint32, now int64) (first bool) {
	if i, ok := x.at[rank]; ok {
		x.list[i].times++
		return false
	}
	if x.at == nil {
		x.at = map[uint32]int32{}
	}
	x.at[rank] = int32(len(x.list))
	x.list = append(x.list, holder{rank, 1, now})
	return true
}

// less counts the end of one of several locks of a rank. Preconditions: the rank has several.
func (x *holders) less(rank uint32) { x.list[x.at[rank]].times-- }

// remove ends all locks of a rank. Preconditions: it holds the lock.
func (x *holders) remove(rank uint32) {
	i, last := x.at[rank], len(x.list)-1
	x.list[i] = x.list[last]
	x.at[x.list[i].rank] = i
	x.list = x.list[:last]
	delete(x.at, rank)
	if last == 0 && cap(x.list) > holdersKept {
		*x = holders{} // a map does not shrink
	}
}
