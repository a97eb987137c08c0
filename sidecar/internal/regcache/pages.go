package regcache

// space maps the pages of one region to the registrations that cover them, in
// leaves that are made when they are first needed.
type space struct {
	session Session
	size    uint64
	pages   uint64
	leaves  []*leaf
	dying   uint32 // the first of those in use that pages cover no more
	retired bool
	walked  uint64 // pages of a retired one that Settle has been at
}

// leafPages is the pages of a leaf: with pages of 4 KiB one leaf is one page
// itself, and maps 4 MiB.
const leafPages = 1 << 10

type leaf [leafPages]uint32

func newSpace(s Session, size uint64, shift uint) *space {
	pages := (size + 1<<shift - 1) >> shift
	return &space{session: s, size: size, pages: pages, leaves: make([]*leaf, (pages+leafPages-1)/leafPages)}
}

// at is the registration that covers a page; 0: none.
func (s *space) at(page uint64) uint32 {
	if page >= s.pages {
		return 0
	}
	l := s.leaves[page/leafPages]
	if l == nil {
		return 0
	}
	return l[page%leafPages]
}

// set maps pages [from, to) to a registration, or to none.
func (s *space) set(from, to uint64, id uint32) {
	for p := from; p < to; {
		l := s.leaves[p/leafPages]
		if l == nil {
			l = new(leaf)
			s.leaves[p/leafPages] = l
		}
		end := min(to, p-p%leafPages+leafPages)
		part := l[p%leafPages : p%leafPages+end-p]
		for i := range part {
			part[i] = id
		}
		p = end
	}
}

// each visits the registrations that cover any of the pages [from, to), each
// once and in order, until visit returns false. visit may take them out of the map.
func (s *space) each(from, to uint64, visit func(id uint32) bool) bool {
	last := uint32(0)
	for p := from; p < min(to, s.pages); {
		if s.leaves[p/leafPages] == nil {
			p += leafPages - p%leafPages
			continue
		}
		if id := s.at(p); id != 0 && id != last {
			last = id
			if !visit(id) {
				return false
			}
		}
		p++
	}
	return true
}

// next is the first page of [from, to) that a registration covers, or to.
func (s *space) next(from, to uint64) uint64 {
	for from < to && s.at(from) == 0 {
		if s.leaves[from/leafPages] == nil {
			from += leafPages - from%leafPages
		} else {
			from++
		}
	}
	return min(from, to)
}

// bury notes that a registration in use is not found any more.
func (c *Cache) bury(s *space, id uint32) {
	e := &c.entries[id]
	e.prev, e.next = 0, s.dying
	if s.dying != 0 {
		c.entries[s.dying].prev = id
	}
	s.dying = id
}

// unbury forgets it.
func (c *Cache) unbury(s *space, e *entry) {
	if e.prev != 0 {
		c.entries[e.prev].next = e.next
	} else {
		s.dying = e.next
	}
	if e.next != 0 {
		c.entries[e.next].prev = e.prev
	}
	e.prev, e.next = 0, 0
}
