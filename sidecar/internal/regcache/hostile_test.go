package regcache

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// sound computes the counts again from the entries and the maps, and returns an error if
// they differ from the cache's counts.
func (c *Cache) sound() error {
	if err := c.soundAccounts(); err != nil {
		return err
	}
	return c.soundMaps()
}

func (c *Cache) soundAccounts() error {
	sums, pinned, live := make([]account, len(c.sessions)), uint64(0), 0
	for id := range c.entries {
		e := &c.entries[id]
		if id == 0 || e.state == stateFree {
			continue
		}
		if err := c.soundEntry(uint32(id), e); err != nil {
			return err
		}
		if e.state == stateDead {
			continue
		}
		a := &sums[e.session]
		a.pinned, a.live, pinned, live = a.pinned+e.len, a.live+1, pinned+e.len, live+1
		if e.refs > 0 {
			a.inUse += e.len
		} else {
			a.idle++
		}
	}
	if pinned != c.pinned || live != c.live {
		return fmt.Errorf("%d bytes in %d registrations, counted as %d in %d", pinned, live, c.pinned, c.live)
	}
	for s := range sums {
		a, want := c.sessions[s], sums[s]
		if a.pinned != want.pinned || a.inUse != want.inUse || a.live != want.live || a.idle != want.idle {
			return fmt.Errorf("session %d has %+v, counted as %+v", s, want, a)
		}
		if a.inUse > c.cfg.PinnedBytes || int(a.live-a.idle) > c.cfg.Entries {
			return fmt.Errorf("session %d has more in use than there may be: %+v", s, a)
		}
		n, last := uint32(0), uint32(0)
		for id := a.oldest; id != 0; id = c.entries[id].next {
			if e := &c.entries[id]; e.prev != last || e.refs != 0 || e.session != Session(s) {
				return fmt.Errorf("session %d: %d is among the idle ones as %+v behind %d", s, id, *e, last)
			}
			n, last = n+1, id
		}
		if n != a.idle || last != a.newest {
			return fmt.Errorf("session %d: %d idle ones in line, want %d", s, n, a.idle)
		}
	}
	return nil
}

func (c *Cache) soundEntry(id uint32, e *entry) error {
	if e.refs == 0 && e.state != stateFound {
		return fmt.Errorf("%d is unused and not in the free list: %+v", id, *e)
	}
	for at := c.byKey[e.key.Key]; at != id; at = c.entries[at].older {
		if at == 0 {
			return fmt.Errorf("%d is not found by its key: %+v", id, *e)
		}
	}
	return nil
}

// soundMaps checks that each page leads to the registration that covers it and reaches
// furthest, that none contains another, and how many cover a page: each newer one has at
// most half of the older ones' pages, so that their number is bounded by the bits of the
// oldest one's number of pages, plus one.
func (c *Cache) soundMaps() error {
	covering := map[link.Region]map[uint64][]uint32{}
	for id := range c.entries {
		e := &c.entries[id]
		if e.state != stateFound {
			continue
		}
		if covering[e.region] == nil {
			covering[e.region] = map[uint64][]uint32{}
		}
		for from, to := c.pagesOf(e); from < to; from++ {
			covering[e.region][from] = append(covering[e.region][from], uint32(id))
		}
	}
	for r, s := range c.spaces {
		if s == nil {
			continue
		}
		for p := range s.pages {
			if err := c.soundPage(s.at(p), covering[link.Region(r)][p]); err != nil {
				return fmt.Errorf("page %d of region %d: %w", p, r, err)
			}
		}
		for id := s.dying; id != 0; id = c.entries[id].next {
			if e := &c.entries[id]; e.state != stateDying || e.region != link.Region(r) {
				return fmt.Errorf("%+v is among the dying ones of region %d", *e, r)
			}
		}
	}
	return nil
}

func (c *Cache) soundPage(id uint32, covering []uint32) error {
	want, largest := uint32(0), uint64(0)
	for i, x := range covering {
		a := &c.entries[x]
		from, to := c.pagesOf(a)
		largest = max(largest, to-from)
		if want == 0 || a.off+a.len > c.entries[want].off+c.entries[want].len {
			want = x
		}
		for _, y := range covering[:i] {
			if b := &c.entries[y]; (a.off < b.off) != (a.off+a.len < b.off+b.len) || a.off == b.off || a.off+a.len == b.off+b.len {
				return fmt.Errorf("one of %+v and %+v contains the other", *a, *b)
			}
		}
	}
	if most := bits.Len64(largest) + 1; len(covering) > most {
		return fmt.Errorf("%d registrations of at most %d pages cover it, want at most %d", len(covering), largest, most)
	}
	if id != want {
		return fmt.Errorf("it leads to %+v, want %+v", c.entries[id], c.entries[want])
	}
	return nil
}

// hostile is a job whose regions retire in steps while their numbers are reused, whose
// leases end in any order, whose kernel refuses by bytes and at random, and that requests
// whole regions as well as single bytes.
type hostile struct {
	rng   *rand.Rand
	c     *Cache
	k     *moody
	sizes []uint64 // sizes of the regions, by number
	used  []hostileUse
	began uint64 // bytes registered when the turn did
	first uint64 // bytes of the first registration of the turn
}

type hostileUse struct {
	lease Lease
	ref   link.Ref
	over  bool // revoked, or its region was dropped
}

// moody is a kernel that refuses requests at random.
type moody struct {
	*kernel
	rng   *rand.Rand
	often int
	all   uint64 // registered bytes
}

func (m *moody) Register(r link.Ref) (link.Key, error) {
	if m.often > 0 && m.rng.IntN(m.often) == 0 {
		return link.Key{}, errNoMemory
	}
	k, err := m.kernel.Register(r)
	if err == nil {
		m.all += r.Len
	}
	return k, err
}

func newHostile(seed uint64) *hostile {
	rng := rand.New(rand.NewPCG(seed, 3))
	sessions := 1 + rng.IntN(5)
	cfg := Config{
		PinnedBytes: page * (1 + rng.Uint64N(4<<rng.IntN(9))), Entries: 1 + rng.IntN(200), Sessions: sessions, PageBytes: page,
		MergeBytes: page * (1 + rng.Uint64N(40)), Batch: 1 + rng.IntN(20),
	}
	if rng.IntN(2) == 0 {
		cfg.Ends = 1 + rng.IntN(20)
	}
	if rng.IntN(2) == 0 {
		cfg.TurnBytes = page * (1 + rng.Uint64N(60))
	}
	if rng.IntN(3) == 0 {
		cfg.SessionBytes = 1 + rng.Uint64N(cfg.PinnedBytes)
	}
	h := &hostile{rng: rng, k: &moody{kernel: newKernel(page * (1 + rng.Uint64N(800))), rng: rng, often: rng.IntN(3) * 4}, sizes: make([]uint64, sessions)}
	h.k.again = rng.IntN(2) == 0
	h.c, _ = New(cfg, h.k)
	for r := range h.sizes {
		h.add(r)
	}
	return h
}

func (h *hostile) add(r int) {
	h.sizes[r] = 1 + h.rng.Uint64N(page*(1+h.rng.Uint64N(300)))
	h.c.AddRegion(link.Region(r), Session(r), h.sizes[r])
}

func (h *hostile) draw() link.Ref {
	r := h.rng.IntN(len(h.sizes))
	size := h.sizes[r]
	n := min(size, 1+h.rng.Uint64N(64<<h.rng.IntN(14)))
	if h.rng.IntN(30) == 0 {
		n = size
	}
	off := h.rng.Uint64N(size - n + 1)
	if h.rng.IntN(2) == 0 {
		off -= off % (8 * page)
	}
	return link.Ref{Region: link.Region(r), Off: off, Len: n}
}

func (h *hostile) step() error {
	switch x := h.rng.IntN(100); {
	case x < 45:
		return h.acquire(h.draw())
	case x < 80:
		if len(h.used) > 0 {
			return h.release(h.rng.IntN(len(h.used)))
		}
	case x < 84:
		h.c.Invalidate(h.draw())
	case x < 88:
		h.c.Settle(1 + h.rng.IntN(6))
	case x < 91:
		h.leave(h.rng.IntN(len(h.sizes)))
	case x < 93:
		before := len(h.k.held)
		h.c.Yield(h.rng.Uint64N(page * 100))
		if ended := before - len(h.k.held); ended > h.c.cfg.Ends {
			return fmt.Errorf("%d registrations yield, at most %d may", ended, h.c.cfg.Ends)
		}
	case x < 95:
		h.c.Turn()
		h.began, h.first = h.k.all, 0
	case x < 97:
		h.k.limit = h.rng.Uint64N(page * 800)
	}
	return nil
}

func (h *hostile) acquire(ref link.Ref) error {
	before, made := len(h.k.held), h.c.stats.Registrations
	l, ok := h.c.Acquire(ref)
	if ended := before + int(h.c.stats.Registrations-made) - len(h.k.held); ended > h.c.cfg.Ends {
		return fmt.Errorf("%d registrations ended for %v, at most %d may", ended, ref, h.c.cfg.Ends)
	}
	bytes := h.k.all - h.began
	if h.first == 0 {
		h.first = bytes
	}
	if most := h.c.cfg.TurnBytes; most > 0 && bytes > max(most, h.first) {
		return fmt.Errorf("%d bytes are registered in a turn, at most %d may be", bytes, most)
	}
	if !ok {
		if h.c.Later() && h.first == 0 {
			return fmt.Errorf("%v is put off, and nothing was registered in this turn", ref)
		}
		return nil
	}
	if held, pinned := h.k.held[l.Key.Key]; !pinned || held.Region != ref.Region || held.Off > ref.Off || held.Off+held.Len < ref.Off+ref.Len {
		return fmt.Errorf("%v is leased as %v", ref, held)
	}
	h.used = append(h.used, hostileUse{l, ref, false})
	return nil
}

func (h *hostile) release(i int) error {
	u := h.used[i]
	h.used = append(h.used[:i], h.used[i+1:]...)
	switch h.rng.IntN(8) {
	case 0:
		id := u.lease.id
		for j := range h.used {
			if h.used[j].lease.id == id {
				h.used[j].over = true
			}
		}
		if !h.c.Revoke(u.lease.Key) {
			return fmt.Errorf("the key of %v in use is not known", u.ref)
		}
	case 1, 2, 3:
		if !h.c.ReleaseKey(u.lease.Key) {
			return fmt.Errorf("the key of %v in use is not known", u.ref)
		}
	default:
		h.c.Release(u.lease)
	}
	return nil
}

// leave ends a region, at once or in steps, and reuses its number.
func (h *hostile) leave(r int) {
	if h.rng.IntN(2) == 0 {
		h.c.RetireRegion(link.Region(r))
		h.c.Settle(h.rng.IntN(4))
	} else {
		h.c.DropRegion(link.Region(r))
		for j := range h.used {
			h.used[j].over = h.used[j].over || int(h.used[j].ref.Region) == r && h.c.entries[h.used[j].lease.id].state == stateDead
		}
	}
	h.add(r)
}

func (h *hostile) check() error {
	if h.k.fault != nil {
		return h.k.fault
	}
	s := h.c.Stats()
	if s.PinnedBytes != h.k.pinned || s.PinnedBytes > h.c.cfg.PinnedBytes || s.Entries > h.c.cfg.Entries {
		return fmt.Errorf("%d bytes are pinned: %+v", h.k.pinned, s)
	}
	for _, u := range h.used {
		if held, ok := h.k.held[u.lease.Key.Key]; !u.over && (!ok || held.Off > u.ref.Off || held.Off+held.Len < u.ref.Off+u.ref.Len) {
			return fmt.Errorf("%v is in use and not registered", u.ref)
		}
	}
	return h.c.sound()
}

// TestHostile checks that the cache's counts agree with its entries in any sequence of
// requests, refusals and retirements, that registrations in use stay, and that none is left
// at the end.
func TestHostile(t *testing.T) {
	first := rand.Uint64()
	for seed := first; seed < first+*jobs/4; seed++ {
		h := newHostile(seed)
		for i := range 600 {
			err := h.step()
			if err == nil {
				err = h.check()
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		for r := range h.sizes {
			h.c.RetireRegion(link.Region(r))
		}
		for len(h.used) > 0 || h.c.Settle(3) {
			if len(h.used) > 0 {
				if err := h.release(0); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		if err := h.check(); err != nil || len(h.k.held) != 0 || len(h.c.byKey) != 0 {
			t.Fatalf("seed %d: %d registrations and %d keys are left: %v", seed, len(h.k.held), len(h.c.byKey), err)
		}
	}
}
