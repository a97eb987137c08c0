package match

// overflow lists, by age, the posted patterns without a class, because maxClasses other masks
// have patterns.
type overflow struct {
	list  list
	links chain // by entry of the posted side
	live  int
}

// overflowMax bounds the overflow list, with which every message is compared.
const overflowMax = 64

// Full reports whether a pattern has no room: maxClasses other masks are in use, and the
// overflow list is full.
func (q *Queue) Full(p Pattern) bool {
	s := &q.posted
	return q.overflow.live >= overflowMax && s.classOf(p.mask()) == none && s.empty() == none
}

// Post adds a pattern behind all others. The Arrive that matches it returns the handle.
// Preconditions: there is room for it (Full).
func (q *Queue) Post(p Pattern, handle uint32) Ref {
	s := &q.posted
	i := s.add(p, handle)
	at := s.classOf(p.mask())
	if at == none {
		at = s.bind(p.mask())
	}
	e := &s.entries[i]
	e.class = at
	if at == none {
		q.overflow.push(i, len(s.entries))
		return s.ref(i)
	}
	l := &s.classes[at]
	l.asked = e.age
	l.add(s.seeds, i, e.envelope)
	return s.ref(i)
}

// Youngest returns the handle of the youngest posted pattern that is equal to p, which
// leaves nothing open. alone is false when patterns that leave something open are posted:
// some of them may satisfy the same messages.
func (q *Queue) Youngest(p Pattern) (handle uint32, found, alone bool) {
	s := &q.posted
	at := s.classOf(mask{})
	if at == none {
		return 0, false, s.live == 0
	}
	l := &s.classes[at]
	alone = s.live == l.live
	if b := l.table.find(s.seeds, Envelope{p.Context, p.Source, p.Tag}); b != none {
		return s.entries[l.table.bins[b].list.tail].handle, true, alone
	}
	return 0, false, alone
}

// Cancel removes a posted pattern. It returns false if r is stale, that is if
// the pattern was matched or cancelled before, or is no Ref of Post.
func (q *Queue) Cancel(r Ref) bool {
	i, ok := q.posted.find(r)
	if ok {
		q.unpost(i)
	}
	return ok
}

// EachPosted calls fn with the handle of every posted pattern, oldest first,
// until fn returns false. Of the Queue's methods fn may only call Cancel, and
// only for the pattern it was called with.
func (q *Queue) EachPosted(fn func(handle uint32) bool) { q.posted.each(fn) }

// unpost removes entry i from its class or the overflow list and returns its handle.
func (q *Queue) unpost(i int32) uint32 {
	s := &q.posted
	if at := s.entries[i].class; at == none {
		q.overflow.links.cut(&q.overflow.list, i)
		q.overflow.live--
	} else {
		s.classes[at].remove(s.seeds, i)
	}
	return s.release(i)
}

// push appends entry i of a slab of the given length.
func (o *overflow) push(i int32, entries int) {
	if len(o.links) < entries {
		o.links = grown(o.links, entries)
	}
	o.links.push(&o.list, i)
	o.live++
}
