package regcache

import "github.com/outrigger-hpc/outrigger/sidecar/internal/link"

// Acquire returns a lease of a registration that contains ref, and makes one if there is
// none. It returns false if there is none and none can be made now; the caller copies.
// Preconditions: ref is not empty and lies in a region that was added.
func (c *Cache) Acquire(ref link.Ref) (Lease, bool) {
	s := c.spaces[ref.Region]
	if id := s.at(ref.Off >> (c.shift & 63)); id != 0 { // the mask avoids a check of the shift
		e := &c.entries[id]
		if d := ref.Off - e.off; ref.Len <= e.len-d {
			if e.refs == 0 && !c.wake(e) {
				return Lease{}, false
			}
			e.refs++
			c.stats.Hits++
			return Lease{link.Key{Key: e.key.Key, Addr: e.key.Addr + d}, id}, true
		}
	}
	return c.miss(s, ref)
}

// Peek does what Acquire does, but makes no registration.
func (c *Cache) Peek(ref link.Ref) (Lease, bool) {
	s := c.spaces[ref.Region]
	if id := s.at(ref.Off >> c.shift); id != 0 {
		if e := &c.entries[id]; ref.Len <= e.len-(ref.Off-e.off) {
			return c.Acquire(ref)
		}
	}
	return Lease{}, false
}

// wake takes an idle registration into use, if its session's share allows it.
func (c *Cache) wake(e *entry) bool {
	a := &c.sessions[e.session]
	if c.over(a, e.len) {
		c.later = false
		c.stats.OverQuota++
		c.tryLimit()
		return false
	}
	a.inUse += e.len
	c.unlink(a, e)
	return true
}

// over reports whether a session would have more than its share in use with n more bytes.
func (c *Cache) over(a *account, n uint64) bool {
	return a.inUse+n > c.share || a.live-a.idle >= c.each
}

// Release ends the use of a registration, which stays for the next use. Preconditions: l is
// a lease of Acquire, and was not released before.
func (c *Cache) Release(l Lease) { c.release(l.id) }

// ReleaseKey does what Release does, for a caller that has only the lease's key. It returns
// false if no registration in use has the key.
func (c *Cache) ReleaseKey(k link.Key) bool {
	id, ok := c.used(k)
	if ok {
		c.release(id)
	}
	return ok
}

// used returns the registration in use that has a key. After a registration is revoked, its
// device may give the same key to another one, while other users of the revoked one have
// not released it yet: the address distinguishes them.
func (c *Cache) used(k link.Key) (uint32, bool) {
	for id := c.byKey[k.Key]; id != 0; id = c.entries[id].older {
		if e := &c.entries[id]; k.Addr-e.key.Addr < e.len && e.refs > 0 {
			return id, true
		}
	}
	return 0, false
}

func (c *Cache) release(id uint32) {
	e := &c.entries[id]
	e.refs--
	if e.refs > 0 {
		return
	}
	switch e.state {
	case stateFound:
		a := &c.sessions[e.session]
		a.inUse -= e.len
		c.link(a, id)
	case stateDying, stateOrphan:
		c.kill(id)
		c.flush()
	case stateDead:
		c.recycle(id)
	}
}

// Revoke ends the use of a registration and the registration itself, at once: for an
// operation that ended early, whose peer may still access the memory. Other operations that
// use the registration fail like any remote operation whose registration ends. It returns
// false if no registration in use has the key.
func (c *Cache) Revoke(k link.Key) bool {
	id, ok := c.used(k)
	if !ok {
		return false
	}
	if e := &c.entries[id]; e.state != stateDead {
		c.kill(id)
		c.stats.Revoked++
		c.flush()
	}
	c.release(id)
	return true
}

// Invalidate makes sure that no lookup finds a registration of ref's pages, because the
// application gives them back. Idle registrations end now; Invalidate returns how many are
// in use, which end with their last use: the pages may be given back when it returns 0.
// Preconditions: ref lies in a region that was added.
func (c *Cache) Invalidate(ref link.Ref) (busy int) {
	s := c.spaces[ref.Region]
	from, to := ref.Off>>c.shift, (ref.Off+ref.Len+c.cfg.PageBytes-1)>>c.shift
	c.covering(s, ref, func(id uint32) bool {
		c.stats.Invalidated++
		c.retire(s, id)
		return true
	})
	c.flush()
	for id := s.dying; id != 0; id = c.entries[id].next {
		if e := &c.entries[id]; e.off < to<<c.shift && from<<c.shift < e.off+e.len {
			busy++
		}
	}
	return busy
}
