package regcache

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

const (
	triesMax = 4    // attempts to register, with less pinned each time
	holdMax  = 1024 // most misses that are refused after successive refusals of the kernel
	probe    = 1024 // misses, and hits that found no room, after which a learnt limit is raised a little
)

// miss registers the pages of ref, together with those of idle registrations that they
// overlap.
func (c *Cache) miss(s *space, ref link.Ref) (Lease, bool) {
	c.stats.Misses++
	c.later = false
	c.tryLimit()
	if c.hold > 0 {
		c.hold--
		c.stats.Held++
		return Lease{}, false
	}
	pages := c.rounded(s, ref)
	if c.over(&c.sessions[s.session], pages.Len) {
		c.stats.OverQuota++
		return Lease{}, false
	}
	if c.late(pages.Len) {
		c.later = true
		c.stats.Later++
		return Lease{}, false
	}
	c.ends = c.cfg.Ends
	whole, merged, ok := c.merged(s, pages)
	if !ok {
		return Lease{}, false
	}
	id, ok := c.register(s, whole)
	if !ok && whole != pages {
		id, ok = c.register(s, pages)
	}
	if !ok {
		return Lease{}, false
	}
	if merged {
		c.stats.Merges++
	}
	e := &c.entries[id]
	return Lease{link.Key{Key: e.key.Key, Addr: e.key.Addr + ref.Off - e.off}, id}, true
}

// late reports whether n bytes exceed what may still be registered in this turn. The first
// registration of a turn is always allowed: it would not be smaller in another turn.
func (c *Cache) late(n uint64) bool {
	return c.cfg.TurnBytes > 0 && c.turn > 0 && c.turn+n > c.cfg.TurnBytes
}

// rounded returns the pages of ref, within its region.
func (c *Cache) rounded(s *space, ref link.Ref) link.Ref {
	from := ref.Off &^ (c.cfg.PageBytes - 1)
	to := min((ref.Off+ref.Len+c.cfg.PageBytes-1)&^(c.cfg.PageBytes-1), s.size)
	return link.Ref{Region: ref.Region, Off: from, Len: to - from}
}

// merged returns the range to register for pages: the union with the registrations that
// they overlap by more than an edge, or pages if the union is too large. Registrations that
// the new one replaces are removed from the map. ok is false if not all of them may end
// now, or the union must wait for another turn.
func (c *Cache) merged(s *space, pages link.Ref) (whole link.Ref, merged, ok bool) {
	most := min(c.cfg.MergeBytes, c.share/8)
	low, high, largest := c.union(s, pages, func(e *entry) bool { return !edge(shared(e, pages), min(e.len, pages.Len)) })
	if high-low > most { // at least those that would be lost otherwise
		low, high, largest = c.union(s, pages, func(e *entry) bool { return !stays(e, pages) })
	}
	whole = pages
	if largest > 0 && high-low <= most {
		whole = c.grown(s, pages, low, high, largest, most)
		// A registration in use that is replaced is pinned until its last release, in
		// addition to its successor.
		if merged = !c.over(&c.sessions[s.session], whole.Len); !merged {
			whole = pages
		}
	}
	if merged && c.late(whole.Len) {
		if !c.covering(s, pages, func(id uint32) bool { return stays(&c.entries[id], pages) }) {
			c.later = true
			c.stats.Later++
			return pages, false, false
		}
		whole, merged = pages, false
	}
	return whole, merged, c.replace(s, whole)
}

// union returns the range of pages and of the overlapping registrations that with selects,
// and the length of the largest of these.
func (c *Cache) union(s *space, pages link.Ref, with func(*entry) bool) (low, high, largest uint64) {
	low, high = pages.Off, pages.Off+pages.Len
	c.covering(s, pages, func(id uint32) bool {
		if e := &c.entries[id]; with(e) {
			low, high, largest = min(low, e.off), max(high, e.off+e.len), max(largest, e.len)
		}
		return true
	})
	return low, high, largest
}

// replace retires the registrations that a registration of whole replaces.
func (c *Cache) replace(s *space, whole link.Ref) bool {
	ok := c.covering(s, whole, func(id uint32) bool {
		e := &c.entries[id]
		if stays(e, whole) {
			return true
		}
		if e.refs == 0 {
			if c.ends == 0 {
				c.stats.Postponed++
				return false
			}
			c.ends--
		}
		c.retire(s, id)
		return true
	})
	c.flush()
	return ok
}

// shared returns how many bytes a registration and ref, which overlap, have in common.
func shared(e *entry, ref link.Ref) uint64 {
	return min(e.off+e.len, ref.Off+ref.Len) - max(e.off, ref.Off)
}

// edge reports whether so little of n bytes is shared that two registrations are better
// than one, as of large buffers that are adjacent and begin anywhere on a page.
func edge(shared, n uint64) bool { return 8*shared <= n }

// stays reports whether a registration is kept next to a newer one of ref, which has at
// most half of it. If it were replaced for a page, each pass over an array that is larger
// than what is registered at once would register it again.
func stays(e *entry, ref link.Ref) bool { return 2*shared(e, ref) <= e.len }

// grown extends a union by half if it grew out of a large registration, so that n
// neighbours that arrive in order pin O(n) pages and not O(n²).
func (c *Cache) grown(s *space, pages link.Ref, low, high, largest, most uint64) link.Ref {
	extra := min((high-low)/2, most-(high-low)) &^ (c.cfg.PageBytes - 1)
	if largest > pages.Len/2 && high == pages.Off+pages.Len && low < pages.Off {
		for end := min(high+extra, s.size); high < end && s.at(high>>c.shift) == 0; {
			high = min(high+c.cfg.PageBytes, s.size)
		}
	}
	if largest > pages.Len/2 && low == pages.Off && high > pages.Off+pages.Len {
		for end := low - min(extra, low); low > end && s.at(low>>c.shift-1) == 0; {
			low -= c.cfg.PageBytes
		}
	}
	return link.Ref{Region: pages.Region, Off: low, Len: high - low}
}

// register pins ref, and makes room for it: first within the budgets, and then below what
// the kernel refuses. A sum that the kernel has refused is above the limit from then on,
// until tryLimit raises the limit.
func (c *Cache) register(s *space, ref link.Ref) (uint32, bool) {
	for range triesMax {
		if !c.makeRoom(s.session, ref.Len) {
			if c.ends == 0 {
				c.stats.Postponed++
			} else {
				c.stats.OverBudget++
			}
			return 0, false
		}
		key, err := c.to.Register(ref)
		if err != nil && c.relieved(ref.Len) {
			key, err = c.to.Register(ref)
		}
		if err == nil {
			c.backoff, c.hold = 0, 0
			c.turn += ref.Len
			c.stats.Registrations++
			c.stats.PinnedPages += (ref.Len + c.cfg.PageBytes - 1) >> c.shift
			return c.newEntry(s, ref, key), true
		}
		c.stats.Refusals++
		if c.ends == 0 { // the registrations that may not end now may be what is missing
			c.stats.Postponed++
			return 0, false
		}
		if c.pinned == 0 {
			break
		}
		c.setLimit(min(c.limit, max(c.pinned+ref.Len-c.cfg.PageBytes, c.cfg.PageBytes)))
		c.served = 0
	}
	c.backoff = min(max(2*c.backoff, 1), holdMax)
	c.hold = c.backoff
	return 0, false
}

// tryLimit raises a learnt limit a little, now and then: the process may have got a higher
// one. Requests for more than a session's share count, too: the share is part of the limit,
// and if it is low there may be no other requests.
func (c *Cache) tryLimit() {
	if c.limit >= c.cfg.PinnedBytes {
		return
	}
	if c.served++; c.served >= probe {
		c.served = 0
		c.setLimit(min(c.cfg.PinnedBytes, c.limit+max(c.limit/16, c.cfg.PageBytes)))
	}
}
