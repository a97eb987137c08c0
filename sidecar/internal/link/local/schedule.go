package local

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// operation is a remote read or write under way.
type operation struct {
	token  uint64
	dst    link.Ref
	src    link.Ref
	reg    *registration // of the side that did not start it
	done   uint64
	notify uint64
	write  bool
}

// schedule shares the link among operations piece by piece: a piece for each
// session that has any, in turn, so that no session's large or many transfers
// hold up another's small one, and within a session a piece for each of its
// oldest few.
type schedule struct {
	shares []*share
	next   int
	idle   []*share // without operations, to be used again
}

// share is the operations of one session, known by the region that it brings.
type share struct {
	region link.Region
	ops    []operation // from head on, oldest first
	head   int
	next   int // the one whose turn it is, counted from head
}

const (
	pieceMax = 64 << 10 // bytes of one piece
	abreast  = 4        // operations of one session that take turns: more would only end later
)

// add appends an operation that was started by the owner of region.
func (s *schedule) add(region link.Region, op operation) {
	for _, h := range s.shares {
		if h.region == region {
			h.ops = append(h.ops, op)
			return
		}
	}
	h := &share{}
	if n := len(s.idle); n > 0 {
		h, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	*h = share{region: region, ops: append(h.ops[:0], op)}
	s.shares = append(s.shares, h)
}

// turn returns the operation whose turn it is, or nil. The caller moves a piece
// of it and calls pass or end.
func (s *schedule) turn() *operation {
	if len(s.shares) == 0 {
		return nil
	}
	s.next %= len(s.shares)
	h := s.shares[s.next]
	h.next %= min(len(h.ops)-h.head, abreast)
	return &h.ops[h.head+h.next]
}

// pass gives the turn to the next session.
func (s *schedule) pass() {
	s.shares[s.next].next++
	s.next++
}

// end removes the operation whose turn it is, and gives the turn to the next
// session.
func (s *schedule) end() {
	h := s.shares[s.next]
	at := h.head + h.next
	copy(h.ops[h.head+1:at+1], h.ops[h.head:at]) // those before it: few
	h.ops[h.head] = operation{}
	h.head++
	switch {
	case h.head == len(h.ops):
		h.ops, h.head = h.ops[:0], 0
		last := len(s.shares) - 1
		s.shares[s.next] = s.shares[last]
		s.shares = s.shares[:last]
		s.idle = append(s.idle, h)
		return
	case h.head >= 64 && h.head*2 >= len(h.ops):
		h.ops = h.ops[:copy(h.ops, h.ops[h.head:])]
		h.head = 0
	}
	s.next++
}
