package regcache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

const page = 4096

func ref(r link.Region, page0, pages uint64) link.Ref {
	return link.Ref{Region: r, Off: page0 * page, Len: pages * page}
}

func newCache(t *testing.T, cfg Config, kernelBytes uint64) (*Cache, *kernel) {
	t.Helper()
	k := newKernel(kernelBytes)
	c, err := New(cfg, k)
	if err != nil {
		t.Fatal(err)
	}
	for s := range max(cfg.Sessions, 1) {
		c.AddRegion(link.Region(4+s), Session(s), 1<<30)
	}
	return c, k
}

func must(t *testing.T, c *Cache, r link.Ref) Lease {
	t.Helper()
	l, ok := c.Acquire(r)
	if !ok {
		t.Fatalf("acquire %v: refused; %+v", r, c.Stats())
	}
	return l
}

// TestRepeatedUse checks that one registration serves every use of a range and of its
// parts.
func TestRepeatedUse(t *testing.T) {
	c, k := newCache(t, Config{}, 1<<40)
	for range 100 {
		whole := must(t, c, ref(4, 10, 4))
		part := must(t, c, link.Ref{Region: 4, Off: 11*page + 100, Len: 200})
		if part.Key.Addr-whole.Key.Addr != page+100 {
			t.Fatalf("a part lies %d bytes behind its registration", part.Key.Addr-whole.Key.Addr)
		}
		c.Release(part)
		c.Release(whole)
	}
	if s := c.Stats(); k.next != 1 || s.Hits != 199 || s.Misses != 1 {
		t.Fatalf("%d registrations; %+v", k.next, s)
	}
}

// TestShares checks that a session cannot take what another one needs, neither with idle
// registrations nor with those in use.
func TestShares(t *testing.T) {
	c, _ := newCache(t, Config{PinnedBytes: 64 * page, Sessions: 2}, 1<<40)
	for i := range uint64(60) { // idle memory may exceed the share
		c.Release(must(t, c, ref(4, 2*i, 1)))
	}
	if s := c.Stats(); s.Evictions != 0 {
		t.Fatalf("evicted %d while there was room", s.Evictions)
	}
	for i := range uint64(32) {
		must(t, c, ref(5, 2*i, 1)) // the whole share of the other session
	}
	if _, ok := c.Acquire(ref(5, 1000, 1)); ok {
		t.Fatal("a session has more than its share in use")
	}
	for i := range uint64(32) {
		must(t, c, ref(4, 2*i, 1)) // and of the first one
	}
	if s := c.Stats(); s.OverQuota != 1 || s.PinnedBytes != 64*page {
		t.Fatalf("%+v", s)
	}
}

// TestLearntLimit: the kernel pins less than the budget. The cache learns how much, stays
// below that, and notices when the limit rises.
func TestLearntLimit(t *testing.T) {
	c, k := newCache(t, Config{PinnedBytes: 1024 * page}, 100*page)
	use := func(n uint64) {
		for i := range n {
			c.Release(must(t, c, ref(4, 2*(i%300), 1)))
		}
	}
	use(300)
	learnt := c.Stats()
	if learnt.LimitBytes > 100*page || learnt.Refusals == 0 {
		t.Fatalf("%+v", learnt)
	}
	use(300)
	if s := c.Stats(); s.Refusals != learnt.Refusals {
		t.Fatalf("asked the kernel %d times more for what it refuses", s.Refusals-learnt.Refusals)
	}
	k.limit = 1 << 40
	use(40 * probe)
	if s := c.Stats(); s.LimitBytes <= 300*page || s.Entries < 300 {
		t.Fatalf("the limit was lifted: %+v", s)
	}
}

// TestHold checks that the kernel is asked less and less if nothing can be pinned.
func TestHold(t *testing.T) {
	c, k := newCache(t, Config{}, 0)
	for range 10_000 {
		if _, ok := c.Acquire(ref(4, 3, 1)); ok {
			t.Fatal("registered what cannot be pinned")
		}
	}
	if s := c.Stats(); s.Refusals > 20 || s.Held < 9_900 {
		t.Fatalf("%+v", s)
	}
	k.limit = 1 << 20
	for range 2 * holdMax {
		if l, ok := c.Acquire(ref(4, 3, 1)); ok {
			c.Release(l)
		}
	}
	if s := c.Stats(); s.Registrations != 1 {
		t.Fatalf("memory can be pinned again: %+v", s)
	}
}

// TestNeighbours checks that adjacent buffers that are used one after another cost pinned
// pages in proportion to their number.
func TestNeighbours(t *testing.T) {
	c, _ := newCache(t, Config{}, 1<<40)
	const n, size = 4000, 1600
	for i := range uint64(n) {
		c.Release(must(t, c, link.Ref{Region: 4, Off: i * size, Len: size}))
	}
	pages := uint64(n * size / page)
	if s := c.Stats(); s.PinnedPages > 6*pages {
		t.Fatalf("%d pages were pinned for buffers on %d", s.PinnedPages, pages)
	}
}

// TestArrays checks that adjacent messages in an array that is larger than what is
// registered at once, and that begin anywhere on a page, are registered once, and not again
// each time the array is sent, in any order, in one turn or in many.
func TestArrays(t *testing.T) {
	const most, pages = 64 * page, 300
	for _, size := range []uint64{1600, page, 5000, 20_000, 28_000, 32 << 10, 250_000, 256 << 10, most} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c, k := newCache(t, Config{PinnedBytes: 1 << 30, MergeBytes: most, TurnBytes: most}, 1<<40)
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 1))
			n := int(pages * page / size)
			pass := func(order []int, together bool) (refused int) {
				var leases []Lease
				for _, i := range order {
					if !together {
						c.Turn()
					}
					l, ok := c.Acquire(link.Ref{Region: 4, Off: 64 + uint64(i)*size, Len: size})
					if ok {
						leases = append(leases, l)
					} else if refused++; !together || !c.Later() {
						t.Fatalf("seed %d: message %d of %d is refused", seed, i, n)
					}
				}
				for _, l := range leases {
					c.Release(l)
				}
				if err := c.sound(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				return refused
			}
			for together := range 2 {
				passes, made := 0, uint64(1)
				for refused := 1; made > 0 || refused > 0; passes++ {
					c.Turn()
					before := c.Stats().Registrations
					refused = pass(rng.Perm(n), together == 1)
					if made = c.Stats().Registrations - before; passes > []int{6, 60}[together] {
						t.Fatalf("seed %d: after %d passes %d registrations are made, and %d refused", seed, passes, made, refused)
					}
				}
				if k.pinned > 3*pages*page {
					t.Errorf("seed %d: %d bytes are pinned for %d", seed, k.pinned, pages*page)
				}
				c.RetireRegion(4)
				c.AddRegion(4, 0, 1<<30)
			}
		})
	}
}

// TestWindows checks that windows that move over an array that is larger than what is
// registered at once, by less than half of their length, are registered once, too: where
// the union with the large registration before them would be too large, they grow next to
// it.
func TestWindows(t *testing.T) {
	const most, pages = 64, 300
	for _, w := range []uint64{2, 8, 16, 24, 31} {
		for d := uint64(1); d < w; d += max(w/5, 1) {
			t.Run(fmt.Sprintf("%d by %d", w, d), func(t *testing.T) {
				c, k := newCache(t, Config{MergeBytes: most * page, TurnBytes: most * page}, 1<<40)
				n := int((pages-w)/d + 1)
				for passes, made := 0, uint64(1); made > 0; passes++ {
					before := c.Stats().Registrations
					for i := range n {
						if passes%2 == 1 {
							i = n - 1 - i
						}
						c.Turn()
						c.Release(must(t, c, ref(4, uint64(i)*d, w)))
					}
					if made = c.Stats().Registrations - before; passes > 6 {
						t.Fatalf("after %d passes over %d windows %d registrations are made", passes, n, made)
					}
					if err := c.sound(); err != nil {
						t.Fatal(err)
					}
				}
				if k.pinned > 3*pages*page {
					t.Errorf("%d bytes are pinned for %d", k.pinned, pages*page)
				}
			})
		}
	}
}

// TestLateOnlyForALoss checks that at the end of a turn's budget a range whose union would
// be too large is deferred only if it would cost a registration of which it has more than
// half of the pages.
func TestLateOnlyForALoss(t *testing.T) {
	for shared, put := range map[uint64]bool{2: false, 4: false, 5: true, 7: true} {
		c, k := newCache(t, Config{TurnBytes: 20 * page}, 1<<40)
		c.Release(must(t, c, ref(4, 0, 8)))
		c.Turn()
		c.Release(must(t, c, ref(4, 100, 8)))
		l, ok := c.Acquire(ref(4, 8-shared, 8))
		if ok == put || c.Later() != put || c.Stats().Later != map[bool]uint64{true: 1}[put] {
			t.Fatalf("%d pages shared: had %v, later %v", shared, ok, c.Later())
		}
		if !put {
			if c.Release(l); len(k.held) != 3 || c.Stats().Merges != 0 {
				t.Errorf("%d pages shared: %d registrations, want 3: %+v", shared, len(k.held), c.Stats())
			}
			continue
		}
		c.Turn()
		c.Release(must(t, c, ref(4, 8-shared, 8)))
		if s := c.Stats(); s.Merges != 1 || len(k.held) != 2 {
			t.Errorf("%d pages shared: %d registrations in the next turn: %+v", shared, len(k.held), s)
		}
	}
}

// TestGivenBackInAPile checks that a page that four registrations cover, of which the map
// has one, is given back by all of them, idle and in use.
func TestGivenBackInAPile(t *testing.T) {
	for _, busy := range []bool{false, true} {
		for p := uint64(59); p < 64; p++ {
			c, k := newCache(t, Config{MergeBytes: page}, 1<<40)
			var leases []Lease
			for i, from := range []uint64{0, 33, 50, 59} {
				leases = append(leases, must(t, c, ref(4, from, 64+uint64(i)-from)))
			}
			if err := c.sound(); err != nil || len(k.held) != 4 {
				t.Fatalf("%d registrations, want 4: %v", len(k.held), err)
			}
			want := 4
			if !busy {
				for _, l := range leases {
					c.Release(l)
				}
				want = 0
			}
			if n := c.Invalidate(ref(4, p, 1)); n != want || len(k.held) != want || c.Stats().Invalidated != 4 {
				t.Fatalf("page %d: %d in use, %d registered, want %d: %+v", p, n, len(k.held), want, c.Stats())
			}
			if _, ok := c.Peek(ref(4, p, 1)); ok {
				t.Fatalf("page %d is found", p)
			}
		}
	}
}

// TestMergedWithHidden checks that a registration that covers a range's first page, as its
// last one, and is hidden by another one, is part of the union.
func TestMergedWithHidden(t *testing.T) {
	c, k := newCache(t, Config{TurnBytes: 3 * page}, 1<<40)
	c.Release(must(t, c, ref(4, 0, 2)))
	c.Turn()
	c.Release(must(t, c, ref(4, 100, 1)))
	c.Release(must(t, c, ref(4, 1, 2))) // next to the first: their union is deferred to another turn
	if len(k.held) != 3 {
		t.Fatalf("no test: %d registrations", len(k.held))
	}
	c.Turn()
	c.Release(must(t, c, ref(4, 1, 3)))
	if _, ok := c.Peek(ref(4, 0, 4)); !ok || len(k.held) != 2 {
		t.Errorf("%d registrations, want the union and another: %v", len(k.held), k.held)
	}
}

// TestGivenBack checks that lookups do not find pages that were given back, and that those
// in use are counted until their last use.
func TestGivenBack(t *testing.T) {
	c, k := newCache(t, Config{}, 1<<40)
	idle, busy := must(t, c, ref(4, 0, 4)), must(t, c, ref(4, 8, 4))
	c.Release(idle)
	if n := c.Invalidate(ref(4, 2, 8)); n != 1 {
		t.Fatalf("%d in use, want 1", n)
	}
	if len(k.held) != 1 {
		t.Fatalf("%d registrations left, want the one in use", len(k.held))
	}
	again := must(t, c, ref(4, 9, 1)) // the page is registered anew: the old registration is not used
	if again.Key.Key == busy.Key.Key {
		t.Fatal("a registration of pages that were given back is found")
	}
	c.Release(busy)
	if n := c.Invalidate(ref(4, 2, 6)); n != 0 || len(k.held) != 1 {
		t.Fatalf("%d in use, %d registered", n, len(k.held))
	}
}

// TestRevoke checks that an operation that ends early ends the registration, even if others
// use it.
func TestRevoke(t *testing.T) {
	c, k := newCache(t, Config{}, 1<<40)
	a, b := must(t, c, ref(4, 0, 4)), must(t, c, ref(4, 1, 1))
	if !c.Revoke(a.Key) || len(k.held) != 0 {
		t.Fatal("the registration is still there")
	}
	d := must(t, c, ref(4, 1, 1))
	if d.Key.Key == b.Key.Key {
		t.Fatal("a revoked registration is found")
	}
	if !c.ReleaseKey(b.Key) || c.ReleaseKey(b.Key) || c.Revoke(a.Key) {
		t.Fatal("leases of a revoked registration are released once")
	}
	c.Release(d)
	if s := c.Stats(); s.Entries != 1 || s.PinnedBytes != page || len(c.byKey) != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestLimitBehindShares: the kernel has refused once while little was pinned, so that a
// session's share became less than what it uses, idle or new. The session requests nothing
// else; the cache still notices when more can be pinned again.
func TestLimitBehindShares(t *testing.T) {
	for name, idle := range map[string]bool{"of a new buffer": false, "of an idle registration": true} {
		t.Run(name, func(t *testing.T) {
			c, k := newCache(t, Config{PinnedBytes: 4096 * page, Sessions: 8, Batch: 1}, 1<<40)
			large := ref(4, 0, 64)
			if idle {
				for i := range uint64(4) { // these are evicted first
					c.Release(must(t, c, ref(4, 1000+2*i, 1)))
				}
				c.Release(must(t, c, large))
			}
			must(t, c, ref(5, 0, 1))
			k.limit = k.pinned
			c.Acquire(ref(6, 0, 2))
			if s := c.Stats(); s.LimitBytes >= 8*large.Len {
				t.Fatalf("%+v: the limit is no test", s)
			}
			if idle && c.spaces[4].at(0) == 0 {
				t.Fatal("the idle registration has gone: no test")
			}
			k.limit = 1 << 40
			for range 200 * probe {
				if l, ok := c.Acquire(large); ok {
					c.Release(l)
					return
				}
			}
			t.Fatalf("64 pages are refused though the kernel would take them: %+v", c.Stats())
		})
	}
}

// TestNothingInVain checks that a request that cannot fit together with the registrations
// in use evicts no idle one.
func TestNothingInVain(t *testing.T) {
	c, _ := newCache(t, Config{PinnedBytes: 64 * page, SessionBytes: 64 * page, Sessions: 2}, 1<<40)
	for i := range uint64(40) {
		must(t, c, ref(4, 2*i, 1))
	}
	for i := range uint64(8) {
		c.Release(must(t, c, ref(4, 100+2*i, 1)))
	}
	if _, ok := c.Acquire(ref(5, 0, 30)); ok {
		t.Fatal("30 pages fit in addition to 40 within 64")
	}
	if s := c.Stats(); s.Evictions != 0 || s.OverBudget != 1 {
		t.Fatalf("evicted for nothing: %+v", s)
	}
	must(t, c, ref(5, 0, 24))
}

// TestSharesOfRegistrations checks that a session that has few bytes in many registrations,
// in use or idle, does not keep others from their share, nor makes them evict their own
// registrations.
func TestSharesOfRegistrations(t *testing.T) {
	c, _ := newCache(t, Config{PinnedBytes: 1 << 20 * page, Entries: 64, Sessions: 2, Batch: 1}, 1<<40)
	c.Release(must(t, c, ref(5, 0, 1000))) // many bytes in one
	for i := range uint64(63) {
		c.Release(must(t, c, ref(4, 2*i, 1)))
	}
	must(t, c, ref(5, 2000, 1))
	if l, ok := c.Peek(ref(5, 0, 1)); !ok {
		t.Fatal("a session's only idle registration went for its next, and not one of the 63 of another's")
	} else {
		c.Release(l)
	}
	for i := range uint64(31) {
		must(t, c, ref(4, 2*i, 1))
	}
	must(t, c, ref(4, 500, 1))
	if _, ok := c.Acquire(ref(4, 502, 1)); ok {
		t.Fatal("a session has more than half of the registrations in use")
	}
	for i := range uint64(31) {
		must(t, c, ref(5, 3000+2*i, 1))
	}
}

// TestKeyAgain: a device gives the key of a revoked registration to another one, while a
// user of the first has yet to release it.
func TestKeyAgain(t *testing.T) {
	c, k := newCache(t, Config{}, 1<<40)
	k.again = true
	a, b := must(t, c, ref(4, 0, 4)), must(t, c, ref(4, 1, 1))
	c.Revoke(a.Key)
	d := must(t, c, ref(4, 100, 4))
	if d.Key.Key != b.Key.Key {
		t.Fatal("no test: the key is another one")
	}
	if !c.ReleaseKey(b.Key) {
		t.Fatal("the shared lease cannot be released")
	}
	if c.Invalidate(ref(4, 100, 4)) != 1 {
		t.Fatal("a registration in use was released with another's lease")
	}
	if !c.Revoke(d.Key) || len(k.held) != 0 || k.fault != nil || len(c.byKey) != 0 {
		t.Fatalf("%d registered, %d keys known, %v", len(k.held), len(c.byKey), k.fault)
	}
}

// TestManyDying checks that tens of thousands of uses whose registrations lookups do not
// find any more end correctly, in any order, and with their region.
func TestManyDying(t *testing.T) {
	c, k := newCache(t, Config{}, 1<<40)
	const n = 60_000
	dying := func() (leases []Lease) {
		for i := range uint64(n) {
			leases = append(leases, must(t, c, ref(4, 2*i, 1)))
		}
		if busy := c.Invalidate(ref(4, 0, 2*n)); busy != n {
			t.Fatalf("%d in use, want %d", busy, n)
		}
		return leases
	}
	leases := dying()
	for _, i := range rand.Perm(n) {
		c.Release(leases[i])
	}
	if got := c.Invalidate(ref(4, 0, 2*n)); got != 0 || len(k.held) != 0 {
		t.Fatalf("%d in use, %d registered", got, len(k.held))
	}
	leases = dying()
	c.DropRegion(4)
	if len(k.held) != 0 {
		t.Fatalf("%d registrations of a region that was dropped", len(k.held))
	}
	c.AddRegion(4, 0, 1<<30) // the number belongs to another region now
	next := must(t, c, ref(4, 0, 2))
	for _, l := range leases {
		c.Release(l)
	}
	if c.Invalidate(ref(4, 0, 2)) != 1 || c.Stats().Entries != 1 {
		t.Fatalf("%+v", c.Stats())
	}
	c.Release(next)
}

// TestRetiredNumber: a region retires with uses that lookups do not find any more, and its
// number is reused for another region, which has such uses, too.
func TestRetiredNumber(t *testing.T) {
	c, k := newCache(t, Config{}, 1<<40)
	dying := func() (leases []Lease) {
		for i := range uint64(8) {
			leases = append(leases, must(t, c, ref(4, 2*i, 1)))
		}
		c.Invalidate(ref(4, 0, 16))
		return leases
	}
	old := dying()
	c.RetireRegion(4)
	if c.Knows(4) {
		t.Fatal("a retired region is known")
	}
	c.AddRegion(4, 0, 1<<30)
	young := dying()
	for i := range old {
		c.Release(old[i])
		if n := c.Invalidate(ref(4, 0, 16)); n != len(young)-i {
			t.Fatalf("%d in use, want %d", n, len(young)-i)
		}
		c.Release(young[i])
	}
	if len(k.held) != 0 || c.Stats().Entries != 0 || c.Pinned(0) != 0 {
		t.Fatalf("%d registered, %+v", len(k.held), c.Stats())
	}
}

// TestRetire checks that the registrations of a retired region end in bounded steps, while
// others register, and within the budgets, and that uses in progress keep their
// registrations.
func TestRetire(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 100 {
		const budget, step = 200 * page, 4
		c, k := newCache(t, Config{PinnedBytes: budget, Sessions: 2, Batch: 1 + rng.IntN(4)}, budget)
		var busy []Lease
		for range 80 {
			l, ok := c.Acquire(link.Ref{Region: 4, Off: rng.Uint64N(1<<30 - 5*page), Len: 1 + rng.Uint64N(3*page)})
			switch {
			case ok && rng.IntN(4) == 0:
				busy = append(busy, l)
			case ok:
				c.Release(l)
			}
		}
		c.RetireRegion(4)
		again := rng.IntN(4) == 0
		for steps := 0; ; steps++ {
			before := len(k.held)
			more := c.Settle(step)
			if ended := before - len(k.held); ended > step {
				t.Fatalf("seed %d: %d registrations ended in a step, want at most %d", seed, ended, step)
			}
			if again && steps == 3 {
				c.AddRegion(4, 0, 1<<30)
				c.Release(must(t, c, ref(4, 7, 1)))
			}
			if l, ok := c.Acquire(ref(5, rng.Uint64N(1000)*2, 1)); ok {
				c.Release(l)
			}
			if len(busy) > 0 && rng.IntN(2) == 0 {
				l := busy[len(busy)-1]
				if held := k.held[l.Key.Key]; held.Region != 4 {
					t.Fatalf("seed %d: a registration in use has ended", seed)
				}
				busy = busy[:len(busy)-1]
				c.Release(l)
			}
			if k.fault != nil || k.pinned > budget || c.Stats().PinnedBytes != k.pinned {
				t.Fatalf("seed %d: %v; %d bytes pinned, %+v", seed, k.fault, k.pinned, c.Stats())
			}
			if !more && len(busy) == 0 {
				break
			}
		}
		if !again && (c.Pinned(0) != 0 || c.sessions[0].live != 0 || c.Stats().Refusals != 0) {
			t.Fatalf("seed %d: %d bytes left, %+v", seed, c.Pinned(0), c.Stats())
		}
	}
}

// TestPeek checks that a registration is found for the ranges that it contains, and that
// none is made.
func TestPeek(t *testing.T) {
	c, _ := newCache(t, Config{}, 1<<40)
	c.Release(must(t, c, ref(4, 10, 2)))
	for at, want := range map[link.Ref]bool{
		ref(4, 10, 2): true, ref(4, 11, 1): true, ref(4, 10, 3): false, ref(4, 9, 2): false, ref(4, 12, 1): false,
		{Region: 4, Off: 12*page - 1, Len: 1}: true, {Region: 4, Off: 12*page - 1, Len: 2}: false,
	} {
		l, ok := c.Peek(at)
		if ok != want {
			t.Errorf("%v: %v, want %v", at, ok, want)
		}
		if ok {
			c.Release(l)
		}
	}
	if s := c.Stats(); s.Registrations != 1 {
		t.Errorf("%+v", s)
	}
}

// TestHitAllocates checks that a hit allocates nothing.
func TestHitAllocates(t *testing.T) {
	c, _ := newCache(t, Config{}, 1<<40)
	r := ref(4, 5, 2)
	c.Release(must(t, c, r))
	if n := testing.AllocsPerRun(1000, func() {
		l, _ := c.Acquire(r)
		c.Release(l)
		l, _ = c.Acquire(r)
		c.ReleaseKey(l.Key)
	}); n != 0 {
		t.Fatalf("%v allocations a hit", n)
	}
}

// benchmarkHit uses n registered buffers of a page, in the order of their registration, as
// a program's loop does, or in a random one, which is the worst for the CPU's caches.
func benchmarkHit(b *testing.B, n int, random bool) {
	c, err := New(Config{}, newKernel(1<<40))
	if err != nil {
		b.Fatal(err)
	}
	c.AddRegion(4, 0, uint64(n)*page)
	rng := rand.New(rand.NewPCG(1, 1))
	refs := make([]link.Ref, n)
	for i, p := range rng.Perm(n) {
		refs[i] = link.Ref{Region: 4, Off: uint64(p)*page + 128, Len: 2048}
		l, ok := c.Acquire(refs[i])
		if !ok {
			b.Fatal("refused")
		}
		c.Release(l)
	}
	if random {
		rng.Shuffle(n, func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	}
	b.ResetTimer()
	k := 0
	for range b.N {
		l, _ := c.Acquire(refs[k])
		c.Release(l)
		if k++; k == n {
			k = 0
		}
	}
}

// BenchmarkHit measures a hit and its release.
func BenchmarkHit(b *testing.B) {
	b.Run("100", func(b *testing.B) { benchmarkHit(b, 100, false) })
	b.Run("100k", func(b *testing.B) { benchmarkHit(b, 100_000, false) })
	b.Run("100k-random", func(b *testing.B) { benchmarkHit(b, 100_000, true) })
}

// BenchmarkBare measures the reference: the same memory in the same orders without a decision,
// a number read for the page and a cache line changed for the registration.
func BenchmarkBare(b *testing.B) {
	bare := func(n int, random bool) func(*testing.B) {
		return func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			index, lines, order := make([]uint32, n), make([][16]uint32, n), rng.Perm(n)
			for i, p := range order {
				index[p] = uint32(i)
			}
			if random {
				rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
			}
			b.ResetTimer()
			k := 0
			for range b.N {
				lines[index[order[k]]][0]++
				if k++; k == n {
					k = 0
				}
			}
		}
	}
	b.Run("100", bare(100, false))
	b.Run("100k", bare(100_000, false))
	b.Run("100k-random", bare(100_000, true))
}
