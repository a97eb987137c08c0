// Package regcache keeps registrations of application memory at a link alive
// after their last use, so that memory that is used again need not be pinned
// again (lazy deregistration: paper 000, section 3.1; paper 004, section 5). It
// is pure: time is the order of the calls, and memory is pinned by a Registrar.
//
// A registration covers whole pages of one region. Of those that can be found a newer one
// has at most half of each older one's pages, and none contains another. The page of a
// range's first byte leads to the one that covers it and reaches furthest, which contains
// the range if any does: a hit is two array reads, however many registrations there are.
//
// What is pinned is bounded by a budget of bytes and one of entries, which the
// sessions of a sidecar share: what is in use is bounded by each session's
// share of both, and what is idle may take what nobody needs now. So each can always
// have its share, and a session that is alone can have nearly everything.
package regcache

import (
	"cmp"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Registrar pins memory, which costs microseconds: a link.
type Registrar interface {
	// Register makes ref reachable. An error means that it cannot be pinned
	// now: the limit of the process, or of the device.
	Register(ref link.Ref) (link.Key, error)
	// Deregister ends registrations. When it has returned no operation that
	// uses them touches their memory any more (link.Remote, Lifetimes).
	Deregister(keys []link.Key)
}

// Config of a Cache. Zero fields take the defaults named.
type Config struct {
	PinnedBytes  uint64 // most that is registered; default 1 GiB
	Entries      int    // most registrations; default 131072
	Sessions     int    // that share the budgets; default 1
	SessionBytes uint64 // most that a session has in use; default its share, PinnedBytes/Sessions
	PageBytes    uint64 // what the kernel pins at once, a power of two; default 4096
	MergeBytes   uint64 // largest registration that a merge makes; default 16 MiB, at most an eighth of a share
	Batch        int    // registrations that one Deregister ends when the cache is full; default 16
	TurnBytes    uint64 // most that is registered from one Turn to the next, but for the first one's; default: any
	Ends         int    // most registrations, of a cache that shares the limit too, that end for one that is made; default 256
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

// Session numbers who memory belongs to: 0 to Config.Sessions-1.
type Session uint32

// Cache is owned by the turn goroutine.
type Cache struct {
	cfg      Config
	shift    uint
	to       Registrar
	spaces   []*space // by link.Region; nil: not ours
	sessions []account
	entries  []entry           // the first is nobody's, so that 0 means none
	free     uint32            // list of entries not in use, by next
	live     int               // registrations at the link
	pinned   uint64            // their bytes
	limit    uint64            // of pinned: PinnedBytes, or what the kernel has taught us
	share    uint64            // of it, what a session may have in use
	each     uint32            // registrations that a session may have in use
	served   int               // misses since the limit was last learnt or tried
	byKey    map[uint64]uint32 // the newest that has a key
	batch    []link.Key        // to be deregistered
	retired  []link.Region     // of which registrations may be left
	ends     int               // registrations that may still end for the one that is being made
	turn     uint64            // bytes registered since Turn
	later    bool              // the last refusal was for that
	hold     int               // misses that are refused without asking the kernel
	backoff  int               // the length of the last hold
	stats    Stats
	other    *Cache // counts against the same limit of the kernel's; nil: none does
}

// account is what a session has.
type account struct {
	pinned, inUse  uint64 // bytes
	live, idle     uint32 // registrations
	oldest, newest uint32 // idle registrations, by the time of their last use
}

// entry is one registration: a cache line.
type entry struct {
	off, len   uint64
	key        link.Key
	refs       int32
	prev, next uint32 // of the session's idle ones, or of the region's dying ones; next: of the free ones
	older      uint32 // has the same key
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

// Lease is the use of a registration. The zero Lease is none.
type Lease struct {
	Key link.Key // of the first byte of the range that was asked for
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

// AddRegion makes size bytes of a session's memory known. Nothing is registered
// yet. Preconditions: region is new, or was dropped or retired; s is below
// Config.Sessions.
func (c *Cache) AddRegion(region link.Region, s Session, size uint64) {
	c.settleNow(region)
	for int(region) >= len(c.spaces) {
		c.spaces = append(c.spaces, nil)
	}
	c.spaces[region] = newSpace(s, size, c.shift)
}

// DropRegion deregisters all that is left of a region and forgets it: its memory
// may be freed. Leases of it may still be released. That takes as long as it takes:
// see RetireRegion.
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

// Knows reports whether region was added.
func (c *Cache) Knows(region link.Region) bool {
	return int(region) < len(c.spaces) && c.spaces[region] != nil && !c.spaces[region].retired
}

// Turn begins a turn, in which Config.TurnBytes may be registered.
func (c *Cache) Turn() { c.turn = 0 }

// Later reports that the last range which was refused may be had in the next turn.
func (c *Cache) Later() bool { return c.later }

// Pinned is the bytes of a session's registrations.
func (c *Cache) Pinned(s Session) uint64 { return c.sessions[s].pinned }

// setLimit bounds what is pinned, and with it each session's share. A hit compares
// with the share, and a division would be a fifth of what it takes.
func (c *Cache) setLimit(n uint64) {
	c.limit, c.share = n, n/uint64(len(c.sessions))
	if c.cfg.SessionBytes != 0 {
		c.share = min(c.cfg.SessionBytes, n)
	}
}

// Stats counts what happened, and says how things stand.
type Stats struct {
	Hits          uint64
	Misses        uint64 // of them those that registered: Registrations
	Registrations uint64
	PinnedPages   uint64 // pages registered in all
	Merges        uint64 // registrations that took the place of ones they overlapped
	Evictions     uint64 // idle ones deregistered for room
	Yields        uint64 // idle ones deregistered for another cache
	Batches       uint64 // calls of Deregister
	Invalidated   uint64 // deregistered because their pages are given back
	Revoked       uint64 // deregistered while others might be using them
	OverQuota     uint64 // refused: the session has its share in use
	OverBudget    uint64 // refused: everything is in use
	Postponed     uint64 // refused: more registrations are to end for it than one turn may wait for
	Later         uint64 // refused: enough was registered in this turn
	Held          uint64 // refused without asking: the kernel has refused just now
	Refusals      uint64 // by the kernel or the device

	Entries     int
	PinnedBytes uint64
	LimitBytes  uint64 // PinnedBytes of the configuration, or less: learnt from refusals
}

// Stats returns the counters as they stand.
func (c *Cache) Stats() Stats {
	s := c.stats
	s.Entries, s.PinnedBytes, s.LimitBytes = c.live, c.pinned, c.limit
	return s
}
