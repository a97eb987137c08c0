package queue

// Fair is a round robin of things that take longer than one step: the owners that have any
// take turns, and so do the things of one owner. An owner with a thousand long transfers
// then holds up another one's single transfer no more than an owner with one does. The zero
// value is empty.
type Fair[Owner comparable, E any] struct {
	// Abreast is how many of an owner's oldest things take turns: where they share a
	// bandwidth, more would only end later. 0: all of them, and one that has had its turn
	// goes behind the others.
	Abreast int

	shares []share[Owner, E]
	at     int               // the share whose turn it is
	spare  []share[Owner, E] // empty, to be used again
}

// share is what one owner has.
type share[Owner comparable, E any] struct {
	owner Owner
	list  FIFO[E]
	at    int // place in list of the thing whose turn it is; 0 where all take turns
}

// Empty reports that there is nothing to do.
func (f *Fair[Owner, E]) Empty() bool { return len(f.shares) == 0 }

// Owners is how many have something to do.
func (f *Fair[Owner, E]) Owners() int { return len(f.shares) }

// Add gives owner one more thing to do.
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

// Turn is the thing whose turn it is; nil: there is none. It stays where it is until the
// next call of f. The caller does a step of it, and calls Pass.
func (f *Fair[Owner, E]) Turn() *E {
	if len(f.shares) == 0 {
		return nil
	}
	f.at %= len(f.shares)
	s := &f.shares[f.at]
	s.at %= min(s.list.Len(), max(f.Abreast, 1))
	return &s.list.Rest()[s.at]
}

// Pass ends the turn, and the next owner is up. The thing is taken out unless it is to have
// another turn. Preconditions: f is not empty.
func (f *Fair[Owner, E]) Pass(again bool) {
	s := &f.shares[f.at]
	switch {
	case !again:
		s.list.Take(s.at)
	case f.Abreast > 0:
		s.at++
	default:
		s.list.Push(s.list.Pop())
	}
	if s.list.Len() > 0 {
		f.at++
		return
	}
	f.leave(f.at)
}

// leave takes out an owner that has nothing to do any more.
func (f *Fair[Owner, E]) leave(i int) {
	last := len(f.shares) - 1
	gone := f.shares[i]
	f.shares[i] = f.shares[last]
	f.shares[last] = share[Owner, E]{}
	f.shares = f.shares[:last]
	if gone.at = 0; gone.list.Reuse() {
		f.spare = append(f.spare, gone)
	}
}

// RemoveFunc takes out the things for which out is true.
func (f *Fair[Owner, E]) RemoveFunc(out func(*E) bool) {
	for i := len(f.shares) - 1; i >= 0; i-- {
		f.shares[i].list.RemoveFunc(out)
		if f.shares[i].list.Len() == 0 {
			f.leave(i)
		}
	}
}

// Clear forgets everything.
func (f *Fair[Owner, E]) Clear() { *f = Fair[Owner, E]{Abreast: f.Abreast} }
