package core

// rota says whose turn it is among things that take longer than one step: the
// ranks that have any take turns, and so do the things of one rank. A rank with
// a thousand long transfers then holds up its neighbour's single one no more
// than a rank with one does.
type rota struct {
	shares []share
	at     int     // the share whose turn it is
	spare  []share // empty, to be used again
}

// share is what one rank has.
type share struct {
	rank uint32
	list fifo[entry]
}

// entry names one thing.
type entry struct {
	kind entryKind
	id   uint64
}

type entryKind uint8

const (
	entrySend    entryKind = iota // Data frames of a send that was pulled
	entryAccess                   // one-sided operations of a rank, by rank
	entryGot                      // Got frames of a get that is served here
	entryRetract                  // a cancel that waits, of a send
	entryLocal                    // local steps of a collective
)

func (r *rota) empty() bool { return len(r.shares) == 0 }

// add gives rank one more thing to do.
func (r *rota) add(rank uint32, e entry) {
	for i := range r.shares {
		if s := &r.shares[i]; s.rank == rank {
			s.list.push(e)
			return
		}
	}
	s := share{}
	if n := len(r.spare); n > 0 {
		s, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	s.rank = rank
	s.list.push(e)
	r.shares = append(r.shares, s)
}

// turn is the thing whose turn it is. Preconditions: r is not empty.
func (r *rota) turn() entry {
	r.at %= len(r.shares)
	return *r.shares[r.at].list.first()
}

// pass ends the turn: the thing goes behind the others of its rank if it is to
// have another one, and the next rank is up.
func (r *rota) pass(again bool) {
	s := &r.shares[r.at]
	e := s.list.pop()
	if again {
		s.list.push(e)
	}
	if s.list.len() > 0 {
		r.at++
		return
	}
	last := len(r.shares) - 1
	gone := *s
	*s = r.shares[last]
	r.shares[last] = share{}
	r.shares = r.shares[:last]
	if gone.list.reuse() {
		r.spare = append(r.spare, gone)
	}
}

// clear forgets everything.
func (r *rota) clear() { *r = rota{} }
