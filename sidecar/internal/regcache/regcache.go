// Package regcache keeps registrations of application memory at a link after their last
// use, so that memory that is used again need not be pinned again (lazy deregistration:
// paper 000, section 3.1; paper 004, section 5). It is pure: time is the order of the
// calls, and a Registrar pins memory.
//
// A registration covers whole pages of one region. Of the registrations that lookups can
// find, a newer one has at most half of each older one's pages, and none contains another.
// The page of a range's first byte leads to the registration that covers it and reaches
// furthest, which contains the range if any does: a hit is two array reads, however many
// registrations there are.
//
// A budget of bytes and one of entries bound what is pinned. The sessions of a sidecar
// share both: each session's share bounds what it has in use, and idle registrations may
// use what no session needs now. So each session can always have its share, and a session
// that is alone can have nearly everything.
//
// A registration is found by lookups while it is in use or idle (stateFound); it is dying
// while it is in use after a newer one replaced it or its pages were invalidated, an orphan
// if its region is forgotten as well, and dead when it was deregistered while it was in
// use.
package regcache

import (
	"cmp"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Registrar pins memory, which costs microseconds. It is a link.
type Registrar interface {
	// Register makes ref reachable. An error means that it cannot be pinned now, because of
	// a limit of the process or of the device.
	Register(ref link.Ref) (link.Key, error)
	// Deregister ends registrations. When it returns, no operation that uses them accesses
	// their memory any more (link.Remote, Lifetimes).
	Deregister(keys []link.Key)
}

// Config configures a Cache. Zero fields have the defaults named.
type Config struct {
	PinnedBytes  uint64 // bound of the registered bytes; default 1 GiB
	Entries      int    // bound of the registrations; default 131072
	Sessions     int    // number of sessions that share the budgets; default 1
	SessionBytes uint64 // bound of the bytes that a session has in use; default its share, PinnedBytes/Sessions
	PageBytes    uint64 // unit in which the kernel pins, a power of two; default 4096
	MergeBytes   uint64 // largest registration that a merge makes; default 16 MiB, at most an eighth of a share
	Batch        int    // registrations that one Deregister ends when the cache is full; default 16
	TurnBytes    uint64 // bound of the bytes registered between two calls of Turn, except for the first registration; default: unbounded
	Ends         int    // bound of the registrations that end for a new one, those of a cache that shares the limit included; default 256
}

func (c *Config) setDefaults() error {
	c.PinnedBytes = cmp.Or(c.PinnedBytes, 1<<30)
	c.Entries = cmp.Or(c.Entries, 128<<10)
	c.Sessions = cmp.Or(c.Sessions, 1)
	c.PageBytes = cmp.Or(c.PageBytes, 4<<10)
	c.MergeBytes = cmp.Or(c.MergeBytes, 16<<20)
	c.Batch = cmp.Or(c.Batch, 16)
	c.Ends = cmp.Or(c.Ends, 256)
	if c.Entries < 1 || c.Sessions < 1 || c.Batch < 1 || c.Ends < 1 || c.Entries > 1<<30 {
		return fmt.Errorf("regcache: %d entries, %d sessions, batches of %d, %d ends: want at least 1 of each", c.Entries, c.Sessions, c.Batch, c.Ends)
	}
	if c.PageBytes&(c.PageBytes-1) != 0 || c.PageBytes < 64 {
		return fmt.Errorf("regcache: pages of %d bytes, want a power of two", c.PageBytes)
	}
	return nil
}

// Session is the number of the owner of memory: 0 to Config.Sessions-1.
type Session uint32

// Cache caches registrations. The turn goroutine owns it.
type Cache struct {
	cfg      Config
	shift    uint
	to       Registrar
	spaces   []*space // spaces by link.Region; nil: the region was not added
	sessions []account
	entries  []entry           // the first is unused, so that 0 means none
	free     uint32            // list of unused entries, by next
	live     int               // number of registrations at the link
	pinned   uint64            // bytes of these
	limit    uint64            // bound of pinned: PinnedBytes, or a limit learnt from the kernel's refusals
	share    uint64            // part of it that a session may have in use
	each     uint32            // number of registrations that a session may have in use
	served   int               // misses since the limit was last learnt or raised
	byKey    map[uint64]uint32 // the newest registration that has the key
	batch    []link.Key        // to be deregistered
	retired  []link.Region     // regions of which registrations may be left
	ends     int               // number of registrations that may still end for the new one
	turn     uint64            // bytes registered since the last call of Turn
	later    bool              // the last refusal was because of TurnBytes
	hold     int               // number of misses that are refused without asking the kernel
	backoff  int               // value of the last hold
	stats    Stats
	other    *Cache // cache that counts against the same limit of the kernel; nil: none does
}

// account counts the registrations of a session.
type account struct {
	pinned, inUse  uint64 // bytes
	live, idle     uint32 // registrations
	oldest, newest uint32 // ends of the list of idle registrations, by the time of their last use
}

// entry is one registration. Its size is a cache line.
type entry struct {
	off, len   uint64
	key        link.Key
	refs       int32
	prev, next uint32 // neighbours among the session's idle ones, or the region's dying ones; next: among the free ones
	older      uint32 // older registration with the same key
	region     link.Region
	session    Session
	state      state
}

type state uint8

const (
	stateFree   state = iota
	stateFound        // lookups find it
	stateDying        // in use, and no lookup finds it: deregistered at its last release
	stateOrphan       // the same, and its region is forgotten
	stateDead         // deregistered, and its users do not know yet
)

// Lease is a use of a registration. The zero Lease is none.
type Lease struct {
	Key link.Key // key of the first byte of the requested range
	id  uint32
}

// New makes a cache.
func New(cfg Config, to Registrar) (*Cache, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	c := &Cache{
		cfg: cfg, to: to, entries: make([]entry, 1),
		sessions: make([]account, cfg.Sessions), byKey: map[uint64]uint32{},
	}
	c.setLimit(cfg.PinnedBytes)
	c.each = uint32(max(cfg.Entries/cfg.Sessions, 1))
	for c.cfg.PageBytes>>c.shift > 1 {
		c.shift++
	}
	return c, nil
}

// AddRegion adds a region of size bytes of a session's memory, without registering it.
// Preconditions: region is new, or was dropped or retired; s is below Config.Sessions.
func (c *Cache) AddRegion(region link.Region, s Session, size uint64) {
	c.settleNow(region)
	for int(region) >= len(c.spaces) {
		c.spaces = append(c.spaces, nil)
	}
	c.spaces[region] = newSpace(s, size, c.shift)
}

// DropRegion deregisters all that is left of a region and forgets it: its memory may be
// freed. Leases of it may still be released. The duration is not bounded: see RetireRegion.
func (c *Cache) DropRegion(region link.Region) {
	if !c.Knows(region) {
		return
	}
	s := c.spaces[region]
	c.covering(s, s.rest(0, c.shift), func(id uint32) bool { c.kill(id); return true })
	for s.dying != 0 {
		c.kill(s.dying)
	}
	c.flush()
	c.spaces[region] = nil
}

// Knows reports whether region was added, and not dropped or retired.
func (c *Cache) Knows(region link.Region) bool {
	return int(region) < len(c.spaces) && c.spaces[region] != nil && !c.spaces[region].retired
}

// Turn begins a turn, in which Config.TurnBytes may be registered.
func (c *Cache) Turn() { c.turn = 0 }

// Later reports whether the last refused range may be registered in the next turn.
func (c *Cache) Later() bool { return c.later }

// Pinned returns the bytes of a session's registrations.
func (c *Cache) Pinned(s Session) uint64 { return c.sessions[s].pinned }

// setLimit sets the bound of what is pinned, and each session's share with it. The share is
// stored because a hit compares with it, and a division would take a fifth of the time of a
// hit.
func (c *Cache) setLimit(n uint64) {
	c.limit, c.share = n, n/uint64(len(c.sessions))
	if c.cfg.SessionBytes != 0 {
		c.share = min(c.cfg.SessionBytes, n)
	}
}

// Stats counts events, and describes the present state.
type Stats struct {
	Hits          uint64
	Misses        uint64 // including those that registered: Registrations
	Registrations uint64
	PinnedPages   uint64 // pages registered in total
	Merges        uint64 // registrations that replaced overlapping ones
	Evictions     uint64 // idle registrations deregistered for room
	Yields        uint64 // idle registrations deregistered for another cache
	Batches       uint64 // calls of Deregister
	Invalidated   uint64 // deregistered because their pages are given back
	Revoked       uint64 // deregistered while other operations might use them
	OverQuota     uint64 // refused: the session has its share in use
	OverBudget    uint64 // refused: everything is in use
	Postponed     uint64 // refused: more registrations would have to end than one turn may wait for
	Later         uint64 // refused: enough was registered in this turn
	Held          uint64 // refused without asking: the kernel has refused just before
	Refusals      uint64 // refusals by the kernel or the device

	Entries     int
	PinnedBytes uint64
	LimitBytes  uint64 // PinnedBytes of the configuration, or less: learnt from refusals
}

// Stats returns the present counters.
func (c *Cache) Stats() Stats {
	s := c.stats
	s.Entries, s.PinnedBytes, s.LimitBytes = c.live, c.pinned, c.limit
	return s
}
