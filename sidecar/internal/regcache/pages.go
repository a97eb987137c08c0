package regcache

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// space maps the pages of one region to the registrations that cover them, in leaves that
// are made when they are first needed. If several registrations cover a page, the map has
// the one that reaches furthest: a range that begins on the page and is contained in any of
// them is contained in that one.
type space struct {
	session Session
	size    uint64
	pages   uint64
	leaves  []*leaf
	dying   uint32 // first of the registrations in use that the map does not contain any more
	retired bool
	walked  uint64 // number of pages of a retired space that Settle has visited
}

// leafPages is the number of pages of a leaf: with pages of 4 KiB a leaf is one page
// itself, and maps 4 MiB.
const leafPages = 1 << 10

type leaf [leafPages]uint32

func newSpace(s Session, size uint64, shift uint) *space {
	pages := (size + 1<<shift - 1) >> shift
	return &space{session: s, size: size, pages: pages, leaves: make([]*leaf, (pages+leafPages-1)/leafPages)}
}

// rest returns the part of the region from a page on.
func (s *space) rest(page uint64, shift uint) link.Ref {
	off := min(page<<shift, s.size)
	return link.Ref{Off: off, Len: s.size - off}
}

// at returns the registration that covers a page and reaches furthest, or 0 for none.
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

// next returns the first page of [from, to) that a registration covers, or to.
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

// covering visits the registrations that cover any page of ref, in the order of their
// addresses, until visit returns false. visit may remove them from the map, and may then
// see another one again.
func (c *Cache) covering(s *space, ref link.Ref, visit func(id uint32) bool) bool {
	from, to := ref.Off>>c.shift, (ref.Off+ref.Len+c.cfg.PageBytes-1)>>c.shift
	if id := s.at(from); id != 0 && !c.hidden(s, id, from, visit) {
		return false
	}
	last := s.at(from)
	if last != 0 && !visit(last) {
		return false
	}
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

// hidden visits the registrations that cover a page and are before id, which the map has
// for the page.
func (c *Cache) hidden(s *space, id uint32, page uint64, visit func(id uint32) bool) bool {
	before := c.before(s, id)
	if before == 0 {
		return true
	}
	if _, end := c.pagesOf(&c.entries[before]); end <= page {
		return true
	}
	return c.hidden(s, before, page, visit) && visit(before)
}

// before returns the registration whose address is before that of id, and that may overlap
// it, or 0 if none does.
func (c *Cache) before(s *space, id uint32) uint32 {
	if first, _ := c.pagesOf(&c.entries[id]); first > 0 {
		return s.at(first - 1)
	}
	return 0
}

// pagesOf returns the pages [from, to) that a registration covers.
func (c *Cache) pagesOf(e *entry) (from, to uint64) {
	return e.off >> c.shift, (e.off + e.len + c.cfg.PageBytes - 1) >> c.shift
}

// show adds a registration's pages to the map, up to those of the next registration.
func (c *Cache) show(s *space, id uint32) {
	e := &c.entries[id]
	from, to := c.pagesOf(e)
	for p := from; p < to; p++ {
		if next := s.at(p); next != 0 && c.entries[next].off > e.off {
			to = p
		}
	}
	s.set(from, to, id)
}

// hide removes a registration's pages from the map. Pages that the previous registration
// covers, too, are mapped to that one again.
func (c *Cache) hide(s *space, id uint32) {
	from, to := c.pagesOf(&c.entries[id])
	end := from
	for end < to && s.at(end) == id {
		end++
	}
	again := from
	if before := c.before(s, id); before != 0 {
		_, reach := c.pagesOf(&c.entries[before])
		again = max(from, min(reach, end))
		s.set(from, again, before)
	}
	s.set(again, end, 0)
}

// bury adds a registration in use to the dying ones, which lookups do not find any more.
func (c *Cache) bury(s *space, id uint32) {
	e := &c.entries[id]
	e.prev, e.next = 0, s.dying
	if s.dying != 0 {
		c.entries[s.dying].prev = id
	}
	s.dying = id
}

// unbury removes a registration from the dying ones.
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
