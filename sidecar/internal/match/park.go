package match

// Park adds a message that no posted pattern accepts behind all others. The Take that
// accepts it returns the handle.
func (q *Queue) Park(e Envelope, handle uint32) Ref {
	s := &q.parked
	i := s.add(Pattern{e.Context, e.Source, e.Tag, 0}, handle)
	for at := range s.classes[:s.bound] {
		s.classes[at].add(s.seeds, i, e)
	}
	return s.ref(i)
}

// Drop removes a parked message. It returns false if r is stale, that is if
// the message was taken or dropped before, or is no Ref of Park.
func (q *Queue) Drop(r Ref) bool {
	i, ok := q.parked.find(r)
	if ok {
		q.unpark(i)
	}
	return ok
}

// EachParked calls fn with the handle of every parked message, oldest first,
// until fn returns false. Of the Queue's methods fn may only call Drop, and
// only for the message it was called with.
func (q *Queue) EachParked(fn func(handle uint32) bool) { q.parked.each(fn) }

// unpark removes entry i from all classes and returns its handle.
func (q *Queue) unpark(i int32) uint32 {
	s := &q.parked
	for at := range s.classes[:s.bound] {
		s.classes[at].remove(s.seeds, i)
	}
	return s.release(i)
}
