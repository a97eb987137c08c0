package ranks

// FairQueue is a round robin among ranks: it says whose turn it is among things
// that take longer than one step. The ranks that have any take turns, and so do
// the things of one rank. A rank with a thousand long transfers then holds up its
// neighbour's single one no more than a rank with one does. The zero value is empty.
type FairQueue[E any] struct {
	shares []share[E]
	at     int        // the share whose turn it is
	spare  []share[E] // empty, to be used again
}

// share is what one rank has.
type share[E any] struct {
	rank uint32
	list FIFO[E]
}

// Empty reports that no rank has a thing in the queue.
func (r *FairQueue[E]) Empty() bool { return len(r.shares) == 0 }

// Ranks is how many ranks have a thing in the queue.
func (r *FairQueue[E]) Ranks() int { return len(r.shares) }

// Add gives rank one more thing to do.
func (r *FairQueue[E]) Add(rank uint32, e E) {
	for i := range r.shares {
		if s := &r.shares[i]; s.rank == rank {
			s.list.Push(e)
			return
		}
	}
	s := share[E]{}
	if n := len(r.spare); n > 0 {
		s, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	s.rank = rank
	s.list.Push(e)
	r.shares = append(r.shares, s)
}

// Turn is the thing whose turn it is. Preconditions: r is not empty.
func (r *FairQueue[E]) Turn() E {
	r.at %= len(r.shares)
	return *r.shares[r.at].list.First()
}

// Pass ends the turn: the thing goes behind the others of its rank if it is to
// have another one, and the next rank is up.
func (r *FairQueue[E]) Pass(again bool) {
	s := &r.shares[r.at]
	e := s.list.Pop()
	if again {
		s.list.Push(e)
	}
	if s.list.Len() > 0 {
		r.at++
		return
	}
	last := len(r.shares) - 1
	gone := *s
	*s = r.shares[last]
	r.shares[last] = share[E]{}
	r.shares = r.shares[:last]
	if gone.list.Reuse() {
		r.spare = append(r.spare, gone)
	}
}

// Clear forgets everything.
func (r *FairQueue[E]) Clear() { *r = FairQueue[E]{} }
