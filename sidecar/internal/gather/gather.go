// Package gather is a layer between the engine and a link that sends only from registered
// memory. For each payload it decides whether the link gathers it from the application's
// buffer or copies it into memory of its own (package reuse), and it caches registrations
// for the next use (package regcache). It is pure: the link copies, registers and
// measures. The verbs link has a Chooser; the simulator uses Remote.
//
// A registration that a cache retains after its last use must not be reached by a peer
// (link.Remote, Lifetimes). There are two caches, which never share a registration.
//
//   - local: made to gather from. No peer ever gets a key of it, and keys cannot be
//     guessed.
//   - remote: a peer has the key. The registration stays only if the operation has
//     ended in order (Release): the peer itself has reported, by the last frame of its
//     protocol, that it accesses the memory no more. If an operation ends early
//     (Deregister), the peer may still access the memory: then the registration ends at
//     once, for all peers that share it. The remote operations of the others fail with
//     link.ErrKey, and the core sends frames instead.
//
// The memory of both is retained by its region, which is dropped (DropRegion) before it
// is unmapped. A peer that breaks the protocol and uses a key again accesses memory that
// this rank's messages have used before, until the next eviction; without the cache, a
// sidecar of the same job could do that only during the operation. If Config.Remote is
// nil, every such registration ends with its use.
package gather

import (
	"errors"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// ErrNoRoom means that a range cannot be registered now. The message is sent in frames.
var ErrNoRoom = errors.New("no room for another registration: the cache is full, or the limit of locked memory is reached")

// Config is the configuration of a Chooser.
type Config struct {
	Sessions int // number of sessions; default 1
	Reuse    reuse.Config
	Local    regcache.Config  // registrations to gather from
	Remote   *regcache.Config // registrations of which peers have keys; nil: not cached
}

// Lease is a registration in use by a gather. The zero Lease is no registration.
type Lease = regcache.Lease

// Chooser decides and caches for one link. It is owned by the turn goroutine.
type Chooser struct {
	table    *reuse.Table
	local    *regcache.Cache
	remote   *regcache.Cache // nil: not cached
	owner    []member        // owner by link.Region
	copied   []uint64        // bytes, by session
	gathered []uint64
	before   struct{ copied, gathered uint64 } // bytes of sessions that have ended
}

// member is the session of a region.
type member struct {
	session regcache.Session
	known   bool
}

// New returns a chooser. local registers the memory that is gathered from, and remote
// that which peers access, if it is cached.
func New(cfg Config, local, remote regcache.Registrar) (*Chooser, error) {
	n := max(cfg.Sessions, 1)
	cfg.Reuse.Sessions, cfg.Local.Sessions = n, n
	c := &Chooser{copied: make([]uint64, n), gathered: make([]uint64, n)}
	var err error
	if c.table, err = reuse.New(cfg.Reuse); err != nil {
		return nil, err
	}
	if c.local, err = regcache.New(cfg.Local, local); err != nil {
		return nil, err
	}
	if cfg.Remote != nil {
		kept := *cfg.Remote
		kept.Sessions = n
		if c.remote, err = regcache.New(kept, remote); err != nil {
			return nil, err
		}
		regcache.Share(c.local, c.remote)
	}
	return c, nil
}

// caches calls visit for each cache.
func (c *Chooser) caches(visit func(*regcache.Cache)) {
	visit(c.local)
	if c.remote != nil {
		visit(c.remote)
	}
}

// Costs returns the table, for calibration and observations.
func (c *Chooser) Costs() *reuse.Table { return c.table }

// AddRegion adds size bytes of a session's memory (link.Abilities). Memory of sessions
// beyond Config.Sessions is ignored: it is copied.
// Preconditions: region is new.
func (c *Chooser) AddRegion(region link.Region, session uint32, size uint64) {
	if int(session) >= len(c.copied) {
		return
	}
	s := regcache.Session(session)
	for int(region) >= len(c.owner) {
		c.owner = append(c.owner, member{})
	}
	c.owner[region] = member{s, true}
	c.caches(func(x *regcache.Cache) { x.AddRegion(region, s, size) })
}

// DropRegion ends all registrations of a region, before its memory is unmapped.
func (c *Chooser) DropRegion(region link.Region) {
	if c.Knows(region) {
		c.caches(func(x *regcache.Cache) { x.DropRegion(region) })
		c.owner[region] = member{}
	}
}

// RetireRegion drops a region like DropRegion, for a link whose device may still have requests
// in flight: registrations in use end with their last use, and idle ones with Settle.
func (c *Chooser) RetireRegion(region link.Region) {
	if c.Knows(region) {
		c.caches(func(x *regcache.Cache) { x.RetireRegion(region) })
		c.owner[region] = member{}
	}
}

// Settle ends about n registrations of retired regions, and reports whether there were
// any.
func (c *Chooser) Settle(n int) (some bool) {
	some = c.local.Settle(n)
	return c.remote != nil && c.remote.Settle(n) || some
}

// EndSession drops the measurements of a rank that has left, before its number is given
// to another rank.
func (c *Chooser) EndSession(s uint32) {
	if int(s) >= len(c.copied) {
		return
	}
	c.table.Forget(reuse.Session(s))
	c.before.copied += c.copied[s]
	c.before.gathered += c.gathered[s]
	c.copied[s], c.gathered[s] = 0, 0
}

// Yield ends idle registrations of n bytes in each cache, as far as there are any, to
// make room for other registrations. It reports whether it ended any.
func (c *Chooser) Yield(n uint64) (some bool) {
	c.caches(func(x *regcache.Cache) { some = x.Yield(n) || some })
	return some
}

// Knows reports whether region was added.
func (c *Chooser) Knows(region link.Region) bool {
	return int(region) < len(c.owner) && c.owner[region].known
}

// Choose decides how a payload is sent: true means gathered from the application's buffer
// under the lease's key, until Done; false means copied. Payloads outside of the
// applications' memory are the link's own, and are not decided here.
// Preconditions: ref lies in a region that was added.
func (c *Chooser) Choose(p reuse.Path, ref link.Ref) (Lease, bool) {
	s := c.owner[ref.Region].session
	buffer, advice := c.table.Use(reuse.Session(s), p, ref)
	lease, ok := Lease{}, false
	switch advice {
	case reuse.Gather:
		lease, ok = c.local.Peek(ref)
	case reuse.Register:
		lease, ok = c.local.Acquire(ref)
		if ok {
			c.table.Bought(buffer, p, ref.Len)
		}
	}
	switch {
	case ok:
	case advice != reuse.Copy:
		c.table.Lost(buffer)
	case c.table.Worth(p, ref.Len):
		lease, ok = c.local.Peek(ref) // it may be registered for another reason
	}
	if ok {
		c.gathered[s] += ref.Len
		return lease, true
	}
	c.copied[s] += ref.Len
	return lease, false
}

// Copied counts a payload that is copied without examining its buffer.
// Preconditions: as for Choose.
func (c *Chooser) Copied(ref link.Ref) { c.copied[c.owner[ref.Region].session] += ref.Len }

// SessionOf returns the session of ref's memory. Preconditions: as for Choose.
func (c *Chooser) SessionOf(ref link.Ref) reuse.Session {
	return reuse.Session(c.owner[ref.Region].session)
}

// Gathers must be called before a payload is copied so that its send ends at once: it
// counts a use of the buffer, and reports whether Choose will gather the payload. If not,
// it counts the payload as copied, and Choose is not called for it.
// Preconditions: as for Choose.
func (c *Chooser) Gathers(p reuse.Path, ref link.Ref) bool {
	s := c.owner[ref.Region].session
	if c.table.Registered(reuse.Session(s), ref) {
		return true // Choose counts the use
	}
	buffer, advice := c.table.Use(reuse.Session(s), p, ref)
	if advice == reuse.Register {
		if lease, ok := c.local.Acquire(ref); ok {
			c.table.Bought(buffer, p, ref.Len)
			c.local.Release(lease)
			return true
		}
		c.table.Lost(buffer)
	}
	c.copied[s] += ref.Len
	return false
}

// Turn begins a turn of the engine, in which regcache.Config.TurnBytes may be registered
// in each cache.
func (c *Chooser) Turn() {
	c.local.Turn()
	if c.remote != nil {
		c.remote.Turn()
	}
}

// Later reports whether the last range that Pin refused may be registered in the next
// turn.
func (c *Chooser) Later() bool { return c.local.Later() }

// Have begins a use of a registration of ref if there is one.
// Preconditions: as for Choose.
func (c *Chooser) Have(ref link.Ref) (Lease, bool) { return c.local.Peek(ref) }

// Pin begins a use of a registration of ref, and makes one if there is none: for an
// operation that needs one however often the buffer is used. It returns false if there is
// no room.
// Preconditions: as for Choose.
func (c *Chooser) Pin(ref link.Ref) (Lease, bool) { return c.local.Acquire(ref) }

// Done ends a gather: the link does not touch the buffer any more.
func (c *Chooser) Done(l Lease) { c.local.Release(l) }

// Invalidate prepares the return of pages to the kernel: it returns how many
// registrations of them are still in use. The pages may be returned when the result is 0.
func (c *Chooser) Invalidate(ref link.Ref) (busy int) {
	c.caches(func(x *regcache.Cache) { busy += x.Invalidate(ref) })
	return busy
}

// Buffers returns a session's counters.
func (c *Chooser) Buffers(s uint32) link.BufferCounts {
	if int(s) >= len(c.copied) {
		return link.BufferCounts{}
	}
	t := c.table.Session(reuse.Session(s))
	n := link.BufferCounts{
		Seen: t.Seen, Frequent: uint64(t.Frequent), Registered: t.Registered, Stopped: t.Stopped,
		CopiedBytes: c.copied[s], GatheredBytes: c.gathered[s],
	}
	c.caches(func(x *regcache.Cache) { n.PinnedBytes += x.Pinned(regcache.Session(s)) })
	return n
}

// Moved returns the sums of the bytes copied and gathered, including ranks that have
// left.
func (c *Chooser) Moved() (copied, gathered uint64) {
	copied, gathered = c.before.copied, c.before.gathered
	for s := range c.copied {
		copied += c.copied[s]
		gathered += c.gathered[s]
	}
	return copied, gathered
}

// Caches returns the counters of the registrations, of all sessions. remote is zero if
// they are not cached.
func (c *Chooser) Caches() (local, remote regcache.Stats) {
	if c.remote != nil {
		remote = c.remote.Stats()
	}
	return c.local.Stats(), remote
}
