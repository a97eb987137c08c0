package match

// maxLanes bounds the lanes of a shelf, and so the work of one operation.
// Four serve a plain MPI program, and four more two masks of a provider.
const maxLanes = 8

// mask is what a pattern leaves open. All patterns of one mask, and all
// messages seen through it, can be told apart by equality of their keys.
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

// lane is an index of entries by key under one mask.
type lane struct {
	mask  mask
	live  int    // entries in the lane
	asked uint64 // when it was last asked for, in the shelf's clock
	table table
	links chain   // by entry: neighbours in its bin
	binOf []int32 // by entry: its bin
}

func (l *lane) resize(entries int) {
	l.links = grown(l.links, entries)
	l.binOf = grown(l.binOf, entries)
}

// add appends entry i with envelope e to its bin.
func (l *lane) add(s seeds, i int32, e Envelope) {
	b := l.table.obtain(s, l.mask.key(e))
	l.links.push(&l.table.bins[b].list, i)
	l.binOf[i] = b
	l.live++
}

// remove takes entry i out of its bin, and gives the bin back if that was
// its last entry.
func (l *lane) remove(s seeds, i int32) {
	b := l.binOf[i]
	at := &l.table.bins[b].list
	l.links.cut(at, i)
	if at.head == none {
		l.table.drop(s, b)
	}
	l.live--
}

// oldest returns the oldest entry whose key is that of e, or none.
func (l *lane) oldest(s seeds, e Envelope) int32 {
	if l.live == 0 {
		return none
	}
	b := l.table.find(s, l.mask.key(e))
	if b == none {
		return none
	}
	return l.table.bins[b].list.head
}

// laneOf returns the lane with mask m, or none.
func (s *shelf) laneOf(m mask) int32 {
	for i := range s.lanes[:s.bound] {
		if s.lanes[i].mask == m {
			return int32(i)
		}
	}
	return none
}

// bind gives mask m a lane without entries: a lane never used, else the empty
// one that was asked for longest ago. It returns none if no lane is empty.
func (s *shelf) bind(m mask) int32 {
	if s.bound < maxLanes {
		l := &s.lanes[s.bound]
		l.mask = m
		l.resize(len(s.entries))
		s.bound++
		return int32(s.bound - 1)
	}
	best := s.empty()
	if best != none {
		s.lanes[best].mask = m
	}
	return best
}

// empty returns a lane that may be bound to another mask, or none: the one that
// was asked for longest ago.
func (s *shelf) empty() int32 {
	best := none
	for i := range s.lanes {
		if s.lanes[i].live == 0 && (best == none || s.lanes[i].asked < s.lanes[best].asked) {
			best = int32(i)
		}
	}
	return best
}
