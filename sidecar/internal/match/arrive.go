package match

// Arrive removes the earliest posted pattern that the message satisfies and returns its
// handle. If there is none, ok is false and the caller parks the message.
func (q *Queue) Arrive(e Envelope) (handle uint32, ok bool) {
	s := &q.posted
	if s.live == 0 {
		return 0, false
	}
	best := none
	for at := range s.classes[:s.bound] {
		i := s.classes[at].oldest(s.seeds, e)
		if i != none && (best == none || s.entries[i].age < s.entries[best].age) {
			best = i
		}
	}
	best = q.earlierOverflow(e, best)
	if best == none {
		return 0, false
	}
	return q.unpost(best), true
}

// earlierOverflow returns the earliest pattern of the overflow list that e
// satisfies if it is older than entry best, else best.
func (q *Queue) earlierOverflow(e Envelope, best int32) int32 {
	for i := q.overflow.list.head; i != none; i = q.overflow.links[i].next {
		x := &q.posted.entries[i]
		if best != none && x.age > q.posted.entries[best].age {
			break
		}
		if x.pattern().Matches(e) {
			return i
		}
	}
	return best
}
