// Package reuse decides, each time that application memory is to be sent, whether to copy
// it into registered memory or to register it and let the link gather from it (papers 000
// and 002). It is pure: it counts, and its caller measures, copies and registers.
//
// A use of a buffer costs the copy C, or the overhead V of finding its registration;
// registering costs R once. So a registration pays after n_min = R/(C-V) uses (000,
// inequality 3). The number of future uses is not known: a buffer is registered after a
// fraction f of n_min, as in the papers, as long as such speculation has paid for itself.
// That guarantees two bounds, up to Config.GrantNS and for any pattern of uses: all
// decisions together cost at most twice what the best ones in hindsight would (ski rental;
// TestAnyPattern), and speculation costs no more than copying everything (TestNoHarm).
//
// A buffer is unknown, counted while its copies accumulate rent, and registered. Use
// returns the advice; the caller reports its result by Bought or Lost.
package reuse

import (
	"cmp"
	"fmt"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// Path is how a message is sent: each path has its own costs (000, Table 2).
type Path uint8

// The paths.
const (
	PathWrite Path = iota // eager by remote write: the papers' fast path
	PathSend              // eager by send and receive: the non-fast path
	PathPut               // one-sided, copied at its origin
	PathGet               // one-sided, copied at its origin when it arrives
	pathCount
)

// Config configures a Table. Zero fields have the defaults named.
type Config struct {
	Buckets  int     // buckets of the hash table, a power of two; default 2^20 (000, section 3.3.3)
	Entries  int     // bound of the known buffers; default 2^18
	Sessions int     // number of sessions; default 1
	Fraction float64 // fraction of n_min at which a buffer is registered; default 0.25 (000, section 3.3.1)
	MinBytes uint64  // smaller messages are copied; default 128 (000, section 5.1.1)
	Frequent float64 // fraction of the known buffers that must be registered for the table to go on growing; default 0.2 (000, section 3.4), negative: it always grows
	GrantNS  float64 // what speculation may lose; default 1 ms
	Window   uint32  // uses after which a session is judged; default 65536
}

func (c *Config) setDefaults() error {
	c.Buckets = cmp.Or(c.Buckets, 1<<20)
	c.Entries = cmp.Or(c.Entries, 1<<18)
	c.Sessions = cmp.Or(c.Sessions, 1)
	c.Fraction = cmp.Or(c.Fraction, 0.25)
	c.MinBytes = cmp.Or(c.MinBytes, 128)
	c.Frequent = cmp.Or(c.Frequent, 0.2)
	c.GrantNS = cmp.Or(c.GrantNS, 1e6)
	c.Window = cmp.Or(c.Window, 1<<16)
	switch {
	case c.Buckets < 2 || c.Buckets&(c.Buckets-1) != 0 || c.Buckets > 1<<30:
		return fmt.Errorf("reuse: %d buckets, want a power of two, 2 to 2^30", c.Buckets)
	case c.Entries < 1 || c.Entries > 1<<30 || c.Sessions < 1 || c.Sessions > 1<<16:
		return fmt.Errorf("reuse: %d buffers of %d sessions, want at least 1 of each, and at most 2^30 and 2^16", c.Entries, c.Sessions)
	case !(c.Fraction > 0 && c.Fraction <= 1) || !(c.Frequent <= 1):
		return fmt.Errorf("reuse: fraction %g and frequent share %g, want 0 to 1", c.Fraction, c.Frequent)
	}
	return nil
}

// Session is the number of a buffer's user: 0 to Config.Sessions-1.
type Session uint32

// Table knows the buffers that were used. The turn goroutine owns it.
type Table struct {
	cfg      Config
	index    index
	entries  []entry // the first is unused, so that 0 means none
	hand     uint32  // where the search for an entry to reuse continues
	costs    costs
	prices   [pathCount][classCount]price
	sessions []session
	slack    float64 // twice the best cost in hindsight, less what was spent, ns
	profit   float64 // what registrations have saved beyond their cost, ns
	stats    Stats
}

// entry is a buffer, identified by its first byte.
type entry struct {
	off     uint64
	region  link.Region
	next    uint32 // in its chain
	rent    float32
	session uint16
	epoch   uint8 // age in which it was last used
	state   state
}

// state is the state of a buffer; it determines the meaning of its rent.
type state uint8

const (
	stateFree       state = iota
	stateCounted          // rent: what its copies have cost beyond V
	stateRegistered       // rent: what its gathers must still save, because the buffer was registered before its copies had cost the price; 0: nothing
)

// Advice is how to send a buffer.
type Advice uint8

// Results of Use.
const (
	Copy     Advice = iota
	Gather          // it was registered: gather, or call Lost if it is not any more
	Register        // register it and gather, and call Bought; or call Lost if that fails
)

// Buffer identifies a known buffer until the next Use.
type Buffer uint32

// New makes a table. Its memory, four bytes a bucket and 24 an entry, is touched as buffers
// are added.
func New(cfg Config) (*Table, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	t := &Table{
		cfg: cfg, index: newIndex(cfg.Buckets),
		entries: make([]entry, 1, cfg.Entries+1), sessions: make([]session, cfg.Sessions), slack: cfg.GrantNS, profit: cfg.GrantNS,
	}
	for i := range t.sessions {
		t.sessions[i].pause = 1
	}
	return t, nil
}

// Use records that ref is to be sent, and returns the advice. The Buffer is for Bought and
// Lost.
//
// Use decides the one case that must be fast, and leaves all others to weigh: without a
// call whose result is needed afterwards, all values stay in registers, which halves its
// duration.
func (t *Table) Use(s Session, p Path, ref link.Ref) (Buffer, Advice) {
	if ref.Len < t.cfg.MinBytes {
		return 0, Copy
	}
	x := &t.prices[p][class(ref.Len)]
	if x.gain <= 0 {
		return 0, Copy
	}
	a := &t.sessions[s]
	id := t.index.heads[t.index.bucket(ref.Region, ref.Off)]
	// The fast path: the first entry of the hash chain is this buffer, was used in this age, is
	// registered, and has saved what its registration cost. If the chain is empty, id is 0, and
	// entries[0] is never registered.
	e := &t.entries[id]
	if e.off == ref.Off && e.region == ref.Region && e.state == stateRegistered && e.rent == 0 &&
		e.epoch == a.epoch && !a.dormant && a.used < t.cfg.Window-1 {
		a.used++
		a.gathers++
		t.profit += float64(x.gain)
		return Buffer(id), Gather
	}
	return t.weigh(a, s, x, ref)
}

// Registered reports whether Use will find a buffer registered, and counts nothing.
func (t *Table) Registered(s Session, ref link.Ref) bool {
	if t.sessions[s].dormant {
		return false
	}
	id := t.index.find(t.entries, ref.Region, ref.Off)
	return id != 0 && t.entries[id].state == stateRegistered
}

// weigh does what Use does, for a message of which a gather would save something.
func (t *Table) weigh(a *session, s Session, x *price, ref link.Ref) (Buffer, Advice) {
	if a.used++; a.used >= t.cfg.Window {
		t.judge(a)
	}
	if a.dormant {
		return 0, Copy
	}
	id := t.index.find(t.entries, ref.Region, ref.Off)
	if id == 0 {
		a.unknown++
		if id = t.insert(s, a, ref); id == 0 {
			return 0, Copy
		}
	}
	e := &t.entries[id]
	if e.epoch != a.epoch {
		t.revive(a, e)
	}
	if e.state == stateRegistered {
		t.gathered(e, x.gain)
		a.gathers++
		return Buffer(id), Gather
	}
	e.rent += x.gain
	if e.rent < x.trigger || !t.affordable(e.rent, x.register) {
		return Buffer(id), Copy
	}
	return Buffer(id), Register
}

// gathered accounts for a use of a registered buffer. Until its rent has reached its price,
// the best decision in hindsight would still have been to copy, and the bound rises by
// twice the copy.
func (t *Table) gathered(e *entry, gain float32) {
	t.profit += float64(gain)
	if e.rent > 0 {
		d := gain
		if d > e.rent {
			d = e.rent
		}
		e.rent -= d
		t.slack += 2 * float64(d)
	}
}

// affordable reports whether to make a registration. When the rent has reached the price it
// always is: rent and price are then twice what the best decision costs. Before that it is
// speculation, which must be earned: what is lost if the buffer is never used again is
// within the bound, and registrations have saved the price of this one, too.
func (t *Table) affordable(rent, register float32) bool {
	if rent >= register || t.slack >= float64(register-rent) && t.profit >= float64(register) {
		return true
	}
	t.stats.Denied++
	return false
}

// Bought records that the buffer of an Advice to register was registered, at the cost of
// registering n bytes. Preconditions: b is of the last Use.
func (t *Table) Bought(b Buffer, p Path, n uint64) {
	e := &t.entries[b]
	x := &t.prices[p][class(n)]
	e.rent = max(0, x.register-e.rent)
	t.profit -= float64(x.register)
	if e.rent > 0 {
		t.slack -= float64(e.rent)
		t.stats.Speculated++
	}
	e.state = stateRegistered
	t.sessions[e.session].frequent++
	t.sessions[e.session].registered++
	t.stats.Registered++
}

// Lost records that a buffer cannot be gathered from: its registration was evicted, or
// refused. The buffer is copied, and counted from the start. Preconditions: b is of the
// last Use.
func (t *Table) Lost(b Buffer) {
	e := &t.entries[b]
	if e.state == stateRegistered {
		t.sessions[e.session].unregister()
	}
	t.stats.Lost++
	e.state, e.rent = stateCounted, 0
}

// insert adds a buffer, unless the session's part has stopped growing. It returns 0 if the
// buffer was not added.
func (t *Table) insert(s Session, a *session, ref link.Ref) uint32 {
	if a.stopped {
		return 0
	}
	// The papers' table begins to chain when two of its buffers share a bucket: by chance,
	// when there are as many pairs as buckets.
	if pairs := uint64(a.known) * uint64(a.known) / 2; pairs >= uint64(t.cfg.Buckets) && float64(a.frequent) < t.cfg.Frequent*float64(a.known) {
		t.stop(a)
		return 0
	}
	full, id := t.index.full(t.entries, ref.Region, ref.Off, t.over)
	switch {
	case full && id == 0:
		t.stats.Crowded++
		return 0
	case full: // the first entry of an earlier age is replaced
		t.remove(id)
	default:
		id = t.slot(a)
	}
	if id == 0 {
		if int(a.known) >= t.cfg.Entries/len(t.sessions) {
			t.stop(a)
		}
		return 0
	}
	t.entries[id] = entry{off: ref.Off, region: ref.Region, session: uint16(s), epoch: a.epoch, state: stateCounted}
	t.index.add(t.entries, id)
	a.known++
	a.seen++
	return id
}

// sweep bounds the entries that are examined for reuse, and so the duration of a Use.
const sweep = 8

// over reports whether an entry is of an earlier age.
func (t *Table) over(e *entry) bool { return e.epoch != t.sessions[e.session].epoch }

// slot returns an entry for session a: a new one; else a free one, one of an earlier age, or,
// if a has less than its share of the entries, one of a session that has more than its share.
// It returns 0 if there is none.
func (t *Table) slot(a *session) uint32 {
	if len(t.entries) < cap(t.entries) {
		t.entries = append(t.entries, entry{})
		return uint32(len(t.entries) - 1)
	}
	for range sweep {
		if t.hand++; int(t.hand) >= len(t.entries) {
			t.hand = 1
		}
		e := &t.entries[t.hand]
		if e.state == stateFree || t.over(e) {
			t.remove(t.hand)
			return t.hand
		}
		if share := uint32(t.cfg.Entries / len(t.sessions)); a.known < share && t.sessions[e.session].known > share {
			t.evict(e)
			t.remove(t.hand)
			return t.hand
		}
	}
	return 0
}

// evict subtracts a buffer from the known buffers of its session.
func (t *Table) evict(e *entry) {
	b := &t.sessions[e.session]
	b.known--
	if e.state == stateRegistered {
		b.unregister()
	}
}

// remove removes an entry from its chain.
func (t *Table) remove(id uint32) {
	if e := &t.entries[id]; e.state != stateFree {
		t.index.remove(t.entries, id)
		e.state = stateFree
	}
}

// Stats counts events, and describes the present state.
type Stats struct {
	Registered uint64  // registrations made
	Speculated uint64  // registrations made before they had paid
	Denied     uint64  // uses for which speculation was not affordable
	Lost       uint64  // registrations that were evicted or refused
	Crowded    uint64  // uses of buffers that are not known because their bucket is full
	Stops      uint64  // times that a session's part stopped growing
	Restarts   uint64  // times that a part began to grow again
	ProfitNS   float64 // what registrations have saved beyond their cost, and the grant
}

// Stats returns the present counters.
func (t *Table) Stats() Stats {
	s := t.stats
	s.ProfitNS = t.profit
	return s
}
