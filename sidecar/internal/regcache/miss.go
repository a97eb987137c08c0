package regcache

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

const (
	triesMax = 4    // how often a registration is tried with less pinned beside it
	holdMax  = 1024 // misses that are refused after many refusals in a row
	probe    = 1024 // misses, and hits that found no room, after which a learnt limit is tried out again
)

// miss registers the pages of ref, together with those of idle registrations
// that they overlap.
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
		c.stats.Postponed++
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

// late reports whether n bytes are more than may still be registered in this turn. The
// first ones of it always may: there is no other turn in which they would be fewer.
func (c *Cache) late(n uint64) bool {
	return c.cfg.TurnBytes > 0 && c.turn > 0 && c.turn+n > c.cfg.TurnBytes
}

// rounded is the pages of ref, within its region.
func (c *Cache) rounded(s *space, ref link.Ref) link.Ref {
	from := ref.Off &^ (c.cfg.PageBytes - 1)
	to := min((ref.Off+ref.Len+c.cfg.PageBytes-1)&^(c.cfg.PageBytes-1), s.size)
	return link.Ref{Region: ref.Region, Off: from, Len: to - from}
}

// merged takes what pages overlaps out of the map, and says what is to be
// registered instead: their union, if that is not too large. false: not all of it
// could end now.
func (c *Cache) merged(s *space, pages link.Ref) (whole link.Ref, merged, ok bool) {
	from, to := pages.Off, pages.Off+pages.Len
	low, high, largest := from, to, uint64(0)
	ok = s.each(from>>c.shift, (to+c.cfg.PageBytes-1)>>c.shift, func(id uint32) bool {
		e := &c.entries[id]
		if e.refs == 0 {
			if c.ends == 0 {
				return false
			}
			c.ends--
		}
		low, high, largest = min(low, e.off), max(high, e.off+e.len), max(largest, e.len)
		c.retire(s, id)
		return true
	})
	c.flush()
	if largest == 0 || !ok {
		return pages, false, ok
	}
	most := min(c.cfg.MergeBytes, c.share/8)
	whole = pages
	if high-low <= most {
		whole = c.grown(s, pages, low, high, largest, most)
	}
	// What was taken out of use cannot be counted on: it is in use until its
	// last release, beside its successor.
	if c.over(&c.sessions[s.session], whole.Len) || c.late(whole.Len) {
		return pages, false, true
	}
	return whole, true, true
}

// grown extends a union by half where it grew out of a large registration, so
// that n neighbours which come one after another pin O(n) pages and not O(n²).
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

// register pins ref, and makes room for it: within the budgets, and then below
// what the kernel refuses. A sum that it has refused is beyond the limit from
// then on, until the limit is tried out again.
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
		if c.ends == 0 { // the rest of them may be all that is missing
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

// tryLimit raises a learnt limit a little, now and then: the process may have
// been granted more. What asks for more than its session's share counts, too: the
// share is part of the limit, and where that is low nothing else may be asked.
func (c *Cache) tryLimit() {
	if c.limit >= c.cfg.PinnedBytes {
		return
	}
	if c.served++; c.served >= probe {
		c.served = 0
		c.setLimit(min(c.cfg.PinnedBytes, c.limit+max(c.limit/16, c.cfg.PageBytes)))
	}
}
