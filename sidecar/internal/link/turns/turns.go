// Package turns shares a link among operations that the link's own processor carries
// out, piece by piece: a piece for each session that has any, in turn, so that no
// session's large or many transfers hold up another's small one, and within a session a
// piece for each of its oldest few.
package turns

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// PieceMax is the bytes of one piece.
const PieceMax = 64 << 10

// abreast is how many operations of one session take turns: more would only end later.
const abreast = 4

// Schedule is the operations of a link. The zero value has none.
type Schedule[Op any] struct {
	shares []*share[Op]
	next   int
	idle   []*share[Op] // without operations, to be used again
}

// share is the operations of one session, known by the region that it brings.
type share[Op any] struct {
	region link.Region
	ops    []Op // from head on, oldest first
	head   int
	next   int // the one whose turn it is, counted from head
}

// Add appends an operation that was started by the owner of region.
func (s *Schedule[Op]) Add(region link.Region, op Op) {
	for _, h := range s.shares {
		if h.region == region {
			h.ops = append(h.ops, op)
			return
		}
	}
	h := &share[Op]{}
	if n := len(s.idle); n > 0 {
		h, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	*h = share[Op]{region: region, ops: append(h.ops[:0], op)}
	s.shares = append(s.shares, h)
}

// Empty reports that there is none.
func (s *Schedule[Op]) Empty() bool { return len(s.shares) == 0 }

// Turn returns the operation whose turn it is, or nil. The caller moves a piece
// of it and calls Pass or End.
func (s *Schedule[Op]) Turn() *Op {
	if len(s.shares) == 0 {
		return nil
	}
	s.next %= len(s.shares)
	h := s.shares[s.next]
	h.next %= min(len(h.ops)-h.head, abreast)
	return &h.ops[h.head+h.next]
}

// Pass gives the turn to the next session.
func (s *Schedule[Op]) Pass() {
	s.shares[s.next].next++
	s.next++
}

// End removes the operation whose turn it is, and gives the turn to the next
// session.
func (s *Schedule[Op]) End() {
	h := s.shares[s.next]
	at := h.head + h.next
	copy(h.ops[h.head+1:at+1], h.ops[h.head:at]) // those before it: few
	var none Op
	h.ops[h.head] = none
	h.head++
	switch {
	case h.head == len(h.ops):
		s.leave(s.next)
		return
	case h.head >= 64 && h.head*2 >= len(h.ops):
		n := copy(h.ops, h.ops[h.head:])
		clear(h.ops[n:])
		h.ops, h.head = h.ops[:n], 0
	}
	s.next++
}

// leave takes out a session that has no operations any more.
func (s *Schedule[Op]) leave(i int) {
	h, last := s.shares[i], len(s.shares)-1
	h.ops, h.head = h.ops[:0], 0
	s.shares[i] = s.shares[last]
	s.shares[last] = nil
	s.shares = s.shares[:last]
	s.idle = append(s.idle, h)
}

// Remove takes out the operations of which out says so.
func (s *Schedule[Op]) Remove(out func(*Op) bool) {
	for i := len(s.shares) - 1; i >= 0; i-- {
		h := s.shares[i]
		kept := h.ops[:0]
		for j := h.head; j < len(h.ops); j++ {
			if !out(&h.ops[j]) {
				kept = append(kept, h.ops[j])
			}
		}
		clear(h.ops[len(kept):])
		if h.ops, h.head = kept, 0; len(kept) == 0 {
			s.leave(i)
		}
	}
}
