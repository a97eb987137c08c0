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

// share is what one rank has, oldest first, from head on.
type share struct {
	rank uint32
	list []entry
	head int
}

// entry names one thing.
type entry struct {
	kind entryKind
	id   uint64
}

type entryKind uint8

const (
	entrySend   entryKind = iota // Data frames of a send that was pulled
	entryAccess                  // one-sided operations of a rank, by rank
	entryGot                     // Got frames of a get that is served here
	entryLocal                   // local steps of a collective
)

func (r *rota) empty() bool { return len(r.shares) == 0 }

// add gives rank one more thing to do.
func (r *rota) add(rank uint32, e entry) {
	for i := range r.shares {
		if s := &r.shares[i]; s.rank == rank {
			s.list = append(s.list, e)
			return
		}
	}
	s := share{}
	if n := len(r.spare); n > 0 {
		s, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	s.rank, s.head, s.list = rank, 0, append(s.list[:0], e)
	r.shares = append(r.shares, s)
}

// turn is the thing whose turn it is. Preconditions: r is not empty.
func (r *rota) turn() entry {
	r.at %= len(r.shares)
	s := &r.shares[r.at]
	return s.list[s.head]
}

// pass ends the turn: the thing goes behind the others of its rank if it is to
// have another one, and the next rank is up.
func (r *rota) pass(again bool) {
	s := &r.shares[r.at]
	e := s.list[s.head]
	s.head++
	if again {
		s.list = append(s.list, e)
	}
	if s.head == len(s.list) {
		last := len(r.shares) - 1
		gone := *s
		*s = r.shares[last]
		r.shares[last] = share{}
		r.shares = r.shares[:last]
		if cap(gone.list) <= rotaKeep {
			r.spare = append(r.spare, gone)
		}
		return
	}
	if s.head >= rotaKeep && s.head*2 >= len(s.list) {
		s.list = s.list[:copy(s.list, s.list[s.head:])]
		s.head = 0
	}
	r.at++
}

// rotaKeep bounds the list of an empty share that is kept.
const rotaKeep = 64

// clear forgets everything.
func (r *rota) clear() { *r = rota{} }
