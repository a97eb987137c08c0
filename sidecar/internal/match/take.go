package match

// Take removes the earliest parked message that satisfies the pattern and
// returns its handle. If there is none, ok is false and the caller posts the
// pattern.
func (q *Queue) Take(p Pattern) (handle uint32, ok bool) {
	i := q.seek(p)
	if i == none {
		return 0, false
	}
	return q.unpark(i), true
}

// Peek returns what Take would, and removes nothing: a probe.
func (q *Queue) Peek(p Pattern) (handle uint32, ok bool) {
	i := q.seek(p)
	if i == none {
		return 0, false
	}
	return q.parked.entries[i].handle, true
}

// seek returns the earliest parked message that satisfies p, or none.
func (q *Queue) seek(p Pattern) int32 {
	s := &q.parked
	at := s.classOf(p.mask())
	if at == none {
		if at = q.learn(p.mask()); at == none {
			return q.walk(p)
		}
	}
	l := &s.classes[at]
	l.asked = s.clock
	return l.oldest(s.seeds, Envelope{p.Context, p.Source, p.Tag})
}

// learn makes a class for mask m and sorts the parked messages into it; from then on Park
// keeps it up to date. Classes are made when they are first needed, so that Park pays only
// for the kinds of receive that the program uses. All classes hold all messages, so one can
// be replaced by another only while nothing is parked; learn returns none if that is not
// so.
func (q *Queue) learn(m mask) int32 {
	s := &q.parked
	at := s.bind(m)
	if at == none {
		return none
	}
	for i := s.byAge.head; i != none; i = s.ages[i].next {
		s.classes[at].add(s.seeds, i, s.entries[i].envelope)
	}
	q.steps += uint64(s.live)
	return at
}

// walk returns the earliest parked message for a pattern without a class.
func (q *Queue) walk(p Pattern) int32 {
	s := &q.parked
	for i := s.byAge.head; i != none; i = s.ages[i].next {
		q.steps++
		if p.Matches(s.entries[i].envelope) {
			return i
		}
	}
	return none
}
