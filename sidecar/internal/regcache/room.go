package regcache

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// link appends a registration without users to the idle ones.
func (c *Cache) link(a *account, id uint32) {
	e := &c.entries[id]
	e.prev, e.next = a.newest, 0
	if a.newest != 0 {
		c.entries[a.newest].next = id
	} else {
		a.oldest = id
	}
	a.newest = id
	a.idle++
}

// unlink removes a registration from the idle ones.
func (c *Cache) unlink(a *account, e *entry) {
	if e.prev != 0 {
		c.entries[e.prev].next = e.next
	} else {
		a.oldest = e.next
	}
	if e.next != 0 {
		c.entries[e.next].prev = e.prev
	} else {
		a.newest = e.prev
	}
	e.prev, e.next = 0, 0
	a.idle--
}

// makeRoom evicts idle registrations until one of n bytes of session s fits the budgets. It
// returns false if too much is in use, or as many registrations have ended as may at once.
// Ending one takes microseconds in which no rank is served: a request for the room of tens
// of thousands of single pages is refused, and finds more room the next time.
func (c *Cache) makeRoom(s Session, n uint64) bool {
	if c.fits(n) {
		return true
	}
	if !c.canFit(n) {
		return false // without evicting any
	}
	for evicted := 0; c.ends > 0 && (!c.fits(n) || evicted < c.cfg.Batch && c.nearlyFull(n)); evicted++ {
		v, ok := c.victim(s, n)
		if !ok {
			break
		}
		c.ends--
		c.stats.Evictions++
		c.kill(c.sessions[v].oldest)
	}
	c.flush()
	return c.fits(n)
}

// Yield ends idle registrations of n bytes, as far as there are, for another cache that
// counts against the same limit of the kernel: the longest unused ones of the sessions that
// have the most, and as many as may end at once. It reports whether it ended any.
func (c *Cache) Yield(n uint64) bool { return c.yield(n, c.cfg.Ends) > 0 }

// yield does what Yield does, with a bound of the registrations that end, and returns their
// number.
func (c *Cache) yield(n uint64, most int) (ended int) {
	for before := c.pinned; ended < most && before-c.pinned < n; ended++ {
		v, ok := c.most(func(a *account) uint64 { return a.pinned }, func(Session) bool { return true })
		if !ok {
			break
		}
		c.stats.Yields++
		c.kill(c.sessions[v].oldest)
	}
	c.flush()
	return ended
}

// Share makes two caches learn one limit of the kernel, which counts the registrations of
// both: before a cache learns a limit from a refusal, idle registrations of the other one
// end, if the other one has more.
func Share(a, b *Cache) { a.other, b.other = b, a }

// relieved reports whether the cache that shares the kernel's limit has ended registrations
// for n bytes that were refused. They count against the registrations that may end for a
// new one: each takes microseconds.
func (c *Cache) relieved(n uint64) bool {
	if c.other == nil || c.other.pinned <= c.pinned+n {
		return false
	}
	ended := c.other.yield(n, c.ends)
	c.ends -= ended
	return ended > 0
}

func (c *Cache) fits(n uint64) bool { return c.live < c.cfg.Entries && c.pinned+n <= c.limit }

// canFit reports whether n bytes would fit if no registration were idle.
func (c *Cache) canFit(n uint64) bool {
	used := uint32(0)
	for i := range c.sessions {
		a := &c.sessions[i]
		n += a.inUse
		used += a.live - a.idle
	}
	return int(used) < c.cfg.Entries && n <= c.limit
}

// nearlyFull reports whether the next misses would have to evict again: then several
// registrations are evicted at once.
func (c *Cache) nearlyFull(n uint64) bool {
	return c.manyLive() || c.pinned+n > c.limit-c.limit/16
}

func (c *Cache) manyLive() bool { return c.live >= c.cfg.Entries-c.cfg.Entries/16 }

// victim returns the session whose oldest idle registration is evicted: the one that needs
// room if it has its share of what is short, else the one with the most beyond its share.
// Which of the two budgets is short does not change while several are evicted at once:
// otherwise one large registration would go for the room of small ones.
func (c *Cache) victim(s Session, n uint64) (Session, bool) {
	if c.live >= c.cfg.Entries || c.manyLive() && c.pinned+n <= c.limit {
		return c.largest(s, 1, uint64(c.each), func(a *account) uint64 { return uint64(a.live) })
	}
	return c.largest(s, n, c.share, func(a *account) uint64 { return a.pinned })
}

// largest returns the victim for n more of a quantity; has returns how much of it a session
// has.
func (c *Cache) largest(s Session, n, share uint64, has func(*account) uint64) (Session, bool) {
	mine := has(&c.sessions[s])
	if c.sessions[s].oldest != 0 && mine+n > share {
		return s, true
	}
	return c.most(has, func(i Session) bool {
		// Idle registrations within a share are evicted only for a session that has less
		// than its own share.
		return has(&c.sessions[i]) > share || i == s || mine+n <= share
	})
}

// most returns the session with the most of a quantity among those with idle registrations
// that may selects.
func (c *Cache) most(has func(*account) uint64, may func(Session) bool) (best Session, found bool) {
	most := uint64(0)
	for i := range c.sessions {
		a := &c.sessions[i]
		if a.oldest != 0 && may(Session(i)) && (!found || has(a) > most) {
			best, most, found = Session(i), has(a), true
		}
	}
	return best, found
}

// retire hides a registration from lookups: an idle one is deregistered.
func (c *Cache) retire(s *space, id uint32) {
	e := &c.entries[id]
	if e.refs == 0 {
		c.kill(id)
		return
	}
	c.hide(s, id)
	e.state = stateDying
	c.bury(s, id)
}

// kill ends a registration with the next flush.
func (c *Cache) kill(id uint32) {
	e := &c.entries[id]
	a, s := &c.sessions[e.session], c.spaces[e.region]
	switch e.state {
	case stateFound:
		c.hide(s, id)
	case stateDying:
		c.unbury(s, e)
	case stateOrphan:
	default:
		return
	}
	c.batch = append(c.batch, e.key)
	c.pinned -= e.len
	a.pinned -= e.len
	c.live--
	a.live--
	if e.refs == 0 && e.state == stateFound {
		c.unlink(a, e)
	} else {
		a.inUse -= e.len
	}
	e.state = stateDead
	if e.refs == 0 {
		c.recycle(id)
	}
}

// flush deregisters the killed registrations.
func (c *Cache) flush() {
	if len(c.batch) == 0 {
		return
	}
	c.stats.Batches++
	c.to.Deregister(c.batch)
	c.batch = c.batch[:0]
}

// recycle makes the entry of a dead registration free.
func (c *Cache) recycle(id uint32) {
	e := &c.entries[id]
	if at := c.byKey[e.key.Key]; at != id {
		for c.entries[at].older != id {
			at = c.entries[at].older
		}
		c.entries[at].older = e.older
	} else if e.older != 0 {
		c.byKey[e.key.Key] = e.older
	} else {
		delete(c.byKey, e.key.Key)
	}
	*e = entry{next: c.free}
	c.free = id
}

// newEntry adds an entry for a new registration.
func (c *Cache) newEntry(s *space, ref link.Ref, key link.Key) uint32 {
	id := c.free
	if id == 0 {
		c.entries = append(c.entries, entry{})
		id = uint32(len(c.entries) - 1)
	} else {
		c.free = c.entries[id].next
	}
	c.entries[id] = entry{off: ref.Off, len: ref.Len, key: key, refs: 1, older: c.byKey[key.Key], region: ref.Region, session: s.session, state: stateFound}
	a := &c.sessions[s.session]
	a.pinned += ref.Len
	a.inUse += ref.Len
	c.pinned += ref.Len
	c.live++
	a.live++
	c.byKey[key.Key] = id
	c.show(s, id)
	return id
}
