package match

// maxClasses bounds the classes of a side, and so the work of one operation. Four serve a
// plain MPI program, and four more serve two masks of a provider.
const maxClasses = 8

// mask is what a pattern leaves open. All patterns of one mask, and all messages seen
// through it, can be distinguished by equality of their keys.
type mask struct {
	ignore    uint64
	anySource bool
}

func (p Pattern) mask() mask { return mask{p.Ignore, p.Source == AnySource} }

// key returns the part of an envelope that counts under the mask.
func (m mask) key(e Envelope) Envelope {
	if m.anySource {
		e.Source = 0
	}
	e.Tag &^= m.ignore
	return e
}

// class is an index of entries by key under one mask.
type class struct {
	mask  mask
	live  int    // number of entries
	asked uint64 // clock of the side at the last lookup
	table table
	links chain   // each entry's neighbours in its bin
	binOf []int32 // each entry's bin
}

func (l *class) resize(entries int) {
	l.links = grown(l.links, entries)
	l.binOf = grown(l.binOf, entries)
}

// add appends entry i with envelope e to its bin.
func (l *class) add(s seeds, i int32, e Envelope) {
	b := l.table.obtain(s, l.mask.key(e))
	l.links.push(&l.table.bins[b].list, i)
	l.binOf[i] = b
	l.live++
}

// remove removes entry i from its bin, and frees the bin if that was its last entry.
func (l *class) remove(s seeds, i int32) {
	b := l.binOf[i]
	at := &l.table.bins[b].list
	l.links.cut(at, i)
	if at.head == none {
		l.table.drop(s, b)
	}
	l.live--
}

// oldest returns the oldest entry whose key is that of e, or none.
func (l *class) oldest(s seeds, e Envelope) int32 {
	if l.live == 0 {
		return none
	}
	b := l.table.find(s, l.mask.key(e))
	if b == none {
		return none
	}
	return l.table.bins[b].list.head
}

// classOf returns the class with mask m, or none.
func (s *side) classOf(m mask) int32 {
	for i := range s.classes[:s.bound] {
		if s.classes[i].mask == m {
			return int32(i)
		}
	}
	return none
}

// bind gives mask m a class without entries: one never used, else the empty one that was
// used longest ago. It returns none if none is empty.
func (s *side) bind(m mask) int32 {
	if s.bound < maxClasses {
		l := &s.classes[s.bound]
		l.mask = m
		l.resize(len(s.entries))
		s.bound++
		return int32(s.bound - 1)
	}
	best := s.empty()
	if best != none {
		s.classes[best].mask = m
	}
	return best
}

// empty returns a class that may be bound to another mask, the one that was used longest
// ago, or none.
func (s *side) empty() int32 {
	best := none
	for i := range s.classes {
		if s.classes[i].live == 0 && (best == none || s.classes[i].asked < s.classes[best].asked) {
			best = int32(i)
		}
	}
	return best
}
