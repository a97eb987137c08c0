package queue

// Fair is a round robin of items that take more than one step: the owners that have items
// take turns, and so do the items of one owner. An owner with a thousand long transfers
// then delays another owner's single transfer no more than an owner with one does. The
// zero value is empty.
type Fair[Owner comparable, E any] struct {
	// PerOwner is how many of an owner's oldest items take turns: if items share a
	// bandwidth, more of them would only make each end later. 0 means all of them, and an
	// item that has had its turn goes to the end.
	PerOwner int

	shares []share[Owner, E]
	at     int               // index of the share in turn
	spare  []share[Owner, E] // empty, for reuse
}

// share holds the items of one owner.
type share[Owner comparable, E any] struct {
	owner Owner
	list  FIFO[E]
	at    int // index in list of the item in turn; 0 where all take turns
}

// Empty reports whether f has no items.
func (f *Fair[Owner, E]) Empty() bool { return len(f.shares) == 0 }

// Owners returns the number of owners that have items.
func (f *Fair[Owner, E]) Owners() int { return len(f.shares) }

// Add adds an item of owner.
func (f *Fair[Owner, E]) Add(owner Owner, e E) {
	for i := range f.shares {
		if s := &f.shares[i]; s.owner == owner {
			s.list.Push(e)
			return
		}
	}
	s := share[Owner, E]{}
	if n := len(f.spare); n > 0 {
		s, f.spare = f.spare[n-1], f.spare[:n-1]
	}
	s.owner = owner
	s.list.Push(e)
	f.shares = append(f.shares, s)
}

// Turn returns the item in turn, or nil if f is empty. The item stays in place until the
// next call of f. The caller executes one step of it, and calls EndTurn.
func (f *Fair[Owner, E]) Turn() *E {
	if len(f.shares) == 0 {
		return nil
	}
	f.at %= len(f.shares)
	s := &f.shares[f.at]
	s.at %= min(s.list.Len(), max(f.PerOwner, 1))
	return &s.list.Rest()[s.at]
}

// EndTurn ends the turn and advances to the next owner. It removes the item unless again
// is true. Preconditions: f is not empty.
func (f *Fair[Owner, E]) EndTurn(again bool) {
	s := &f.shares[f.at]
	switch {
	case !again:
		s.list.PopAt(s.at)
	case f.PerOwner > 0:
		s.at++
	default:
		s.list.Push(s.list.Pop())
	}
	if s.list.Len() > 0 {
		f.at++
		return
	}
	f.removeShare(f.at)
}

// removeShare removes the share of an owner that has no items any more.
func (f *Fair[Owner, E]) removeShare(i int) {
	last := len(f.shares) - 1
	gone := f.shares[i]
	f.shares[i] = f.shares[last]
	f.shares[last] = share[Owner, E]{}
	f.shares = f.shares[:last]
	if gone.at = 0; gone.list.Reset() {
		f.spare = append(f.spare, gone)
	}
}

// RemoveFunc removes the items for which out is true.
func (f *Fair[Owner, E]) RemoveFunc(out func(*E) bool) {
	for i := len(f.shares) - 1; i >= 0; i-- {
		f.shares[i].list.RemoveFunc(out)
		if f.shares[i].list.Len() == 0 {
			f.removeShare(i)
		}
	}
}

// Clear removes all items.
func (f *Fair[Owner, E]) Clear() { *f = Fair[Owner, E]{PerOwner: f.PerOwner} }
