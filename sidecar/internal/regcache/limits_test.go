package regcache

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestShortOfRegistrations checks that a few registrations are evicted at once if their
// number is short, and not the single registration with many bytes of another session.
func TestShortOfRegistrations(t *testing.T) {
	for _, who := range []uint64{0, 1} {
		c, _ := newCache(t, Config{PinnedBytes: 1 << 20 * page, Entries: 64, Sessions: 2}, 1<<40)
		large := ref(5, 0, 1000)
		c.Release(must(t, c, large))
		for i := range uint64(63) {
			c.Release(must(t, c, ref(4, 2*i, 1)))
		}
		must(t, c, ref(link.Region(4+who), 2000, 1))
		if s := c.Stats(); s.Evictions < 2 {
			t.Fatalf("no test: %+v", s)
		}
		if _, ok := c.Peek(large); !ok {
			t.Errorf("session %d: 1,000 pages were given up for the places of single ones", who)
		}
	}
}

// TestEndsAreBounded checks that a request that needs the room, or the pages, of thousands
// of small registrations does not wait for the end of all of them: it is refused, and
// succeeds after a few tries.
func TestEndsAreBounded(t *testing.T) {
	const n = 4096
	for name, large := range map[string]link.Ref{"the room": ref(4, 3*n, n-1), "the pages": ref(4, 0, 2*n)} {
		t.Run(name, func(t *testing.T) {
			budget := uint64(n)
			if name == "the pages" {
				budget = 1 << 20
			}
			c, k := newCache(t, Config{PinnedBytes: budget * page}, 1<<40)
			for i := range uint64(n) {
				c.Release(must(t, c, ref(4, 2*i, 1)))
			}
			for tries := 1; ; tries++ {
				before := len(k.held)
				l, ok := c.Acquire(large)
				if ended := before - len(k.held); ended > 256 {
					t.Fatalf("%d registrations end for one", ended)
				}
				if ok {
					c.Release(l)
					break
				}
				if tries > n/256 {
					t.Fatalf("refused %d times: %+v", tries, c.Stats())
				}
			}
			if s := c.Stats(); s.Postponed == 0 || s.OverBudget+s.Refusals != 0 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

// TestHeldNoMore: the kernel refuses the union of a merge, and accepts the range itself.
// Ranges that can be registered are not refused after that.
func TestHeldNoMore(t *testing.T) {
	c, k := newCache(t, Config{}, 9*page)
	c.Release(must(t, c, ref(4, 0, 6)))
	c.Release(must(t, c, ref(4, 4, 5))) // with the first it is 9 pages, and half as many in addition
	if s := c.Stats(); s.Refusals == 0 || s.PinnedBytes != 5*page {
		t.Fatalf("no test: %+v", s)
	}
	if _, ok := c.Acquire(ref(4, 100, 1)); !ok {
		t.Fatalf("a page is refused, and %d of 9 are pinned: %+v", k.pinned/page, c.Stats())
	}
}

// TestStrangeRegions checks that a region that was never added is not known, and that
// dropping it has no effect; and that a cache without room for any registration is an
// error.
func TestStrangeRegions(t *testing.T) {
	c, _ := newCache(t, Config{}, 9*page)
	for r := range link.Region(20) {
		if c.Knows(r) && r != 4 {
			c.DropRegion(r)
		}
	}
	c.DropRegion(1000)
	c.RetireRegion(link.Region(len(c.spaces)))
	if c.Settle(1) {
		t.Error("a region that was never added is there to be ended")
	}
	for _, cfg := range []Config{{Entries: -1}, {Sessions: -1}, {Batch: -1}, {Ends: -1}, {Entries: 1<<30 + 1}, {PageBytes: 96}, {PageBytes: 32}} {
		if _, err := New(cfg, newKernel(page)); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

// TestLimitRisesSlowly checks that a learnt limit is raised a sixteenth at a time, so that
// the kernel is not asked for all of it again, up to the configured value and not beyond.
func TestLimitRisesSlowly(t *testing.T) {
	c, _ := newCache(t, Config{PinnedBytes: 100 * page}, 100*page)
	for learnt := uint64(64 * page); learnt < 100*page; {
		c.setLimit(learnt)
		want := min(learnt+learnt/16, 100*page)
		for c.served = 0; c.limit == learnt; {
			c.tryLimit()
		}
		if c.limit != want {
			t.Fatalf("from %d bytes to %d, want %d", learnt, c.limit, want)
		}
		learnt = c.limit
	}
	if c.tryLimit(); c.limit != 100*page {
		t.Errorf("%d bytes, %d are configured", c.limit, 100*page)
	}
}
