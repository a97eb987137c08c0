package regcache

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// job plays the same story on the cache and on the obvious one.
type job struct {
	rng    *rand.Rand
	fast   *Cache
	slow   *obvious
	kf, ks *kernel
	spans  []link.Ref // the regions
	uses   []use
}

type use struct {
	lease Lease
	plain *plain
	ref   link.Ref
}

func drawJob(seed uint64) *job {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := Config{
		PinnedBytes: 4096 * (4 + rng.Uint64N(300)), Entries: 2 + rng.IntN(60), Sessions: 1 + rng.IntN(4),
		PageBytes: 4096, MergeBytes: 4096 * (1 + rng.Uint64N(64)), Batch: 1 + rng.IntN(8),
	}
	if rng.IntN(4) == 0 {
		cfg.SessionBytes = cfg.PinnedBytes / (1 + rng.Uint64N(4))
	}
	switch rng.IntN(8) {
	case 0: // small sizes, and shares below a page
		cfg.PinnedBytes, cfg.Entries = 1+rng.Uint64N(4096*3), 1+rng.IntN(3)
	case 1: // registrations are scarce, and bytes are not
		cfg.PinnedBytes, cfg.Entries = 1<<40, cfg.Sessions+rng.IntN(12)
	case 2: // small pages, one registration at a time
		cfg.PageBytes, cfg.Batch = 64<<rng.IntN(4), 1
	}
	limit := uint64(1 << 40)
	if rng.IntN(2) == 0 {
		limit = cfg.PinnedBytes / 8 * (1 + rng.Uint64N(10))
	}
	j := &job{rng: rng, kf: newKernel(limit), ks: newKernel(limit)}
	j.kf.again = rng.IntN(2) == 0
	j.ks.again = j.kf.again
	j.fast, _ = New(cfg, j.kf)
	j.slow = newObvious(cfg, j.ks)
	for s := range cfg.Sessions {
		j.addRegion(link.Region(4+s), Session(s))
	}
	return j
}

func (j *job) addRegion(r link.Region, s Session) {
	size := 1 + j.rng.Uint64N(4096*200)
	if j.rng.IntN(8) == 0 {
		size += 4096 * leafPages // more than a leaf of the map
	}
	j.spans = append(j.spans, link.Ref{Region: r, Len: size})
	j.fast.AddRegion(r, s, size)
	j.slow.size[r], j.slow.owner[r] = size, s
}

// draw returns a range of some region: mostly small, and often one of a few ranges.
func (j *job) draw() link.Ref {
	r := j.spans[j.rng.IntN(len(j.spans))]
	n := min(1+j.rng.Uint64N(1<<(1+j.rng.Uint64N(18))), r.Len)
	off := j.rng.Uint64N(r.Len - n + 1)
	switch j.rng.IntN(10) {
	case 0, 1, 2, 3, 4:
		off = min(off/8192*8192, r.Len-n)
	case 5: // up to the end, and across the end of a leaf
		off = r.Len - n
		if edge := uint64(4096 * leafPages); off > edge {
			off = edge - min(n/2, edge)
		}
	case 6:
		if j.rng.IntN(8) == 0 {
			off, n = 0, r.Len
		}
	}
	return link.Ref{Region: r.Region, Off: off, Len: n}
}

func (j *job) step() error {
	switch k := j.rng.IntN(100); {
	case k < 48:
		return j.acquire(j.draw())
	case k < 92:
		if len(j.uses) == 0 {
			return nil
		}
		u := j.take()
		j.slow.release(u.plain)
		if k%2 == 0 {
			j.fast.Release(u.lease)
		} else if !j.fast.ReleaseKey(u.lease.Key) {
			return fmt.Errorf("the key of a lease is not known")
		}
	case k < 95:
		ref := j.draw()
		if a, b := j.fast.Invalidate(ref), j.slow.invalidate(ref); a != b {
			return fmt.Errorf("invalidate %v: %d in use, want %d", ref, a, b)
		}
	case k < 97:
		if len(j.uses) > 0 {
			u := j.take()
			j.slow.revoke(u.plain)
			if !j.fast.Revoke(u.lease.Key) {
				return fmt.Errorf("the key of a lease is not known")
			}
		}
	case k < 98:
		j.renew()
	case j.kf.limit < 1<<40: // another process pins memory, or the limit is raised
		j.kf.limit = max(4096, j.kf.limit/4*(1+j.rng.Uint64N(8)))
		j.ks.limit = j.kf.limit
	}
	return nil
}

func (j *job) take() use {
	i := j.rng.IntN(len(j.uses))
	u := j.uses[i]
	j.uses = slices.Delete(j.uses, i, i+1)
	return u
}

// renew ends a session's region and gives it another one, with a new number.
func (j *job) renew() {
	i := j.rng.IntN(len(j.spans))
	old, next := j.spans[i].Region, link.Region(0)
	for _, s := range j.spans {
		next = max(next, s.Region+1)
	}
	if j.rng.IntN(2) == 0 {
		j.fast.DropRegion(old)
		j.slow.drop(old)
	} else {
		j.fast.RetireRegion(old)
		j.fast.settleNow(old) // in steps: TestRetire
		j.slow.invalidate(link.Ref{Region: old, Len: j.spans[i].Len})
	}
	j.spans = slices.Delete(j.spans, i, i+1)
	j.addRegion(next, j.slow.owner[old])
}

func (j *job) acquire(ref link.Ref) error {
	x := j.slow.acquire(ref)
	l, ok := j.fast.Acquire(ref)
	if ok != (x != nil) {
		return fmt.Errorf("acquire %v: %v, want %v", ref, ok, x != nil)
	}
	if !ok {
		return nil
	}
	if want := (link.Key{Key: x.key.Key, Addr: x.key.Addr + ref.Off - x.Off}); l.Key != want {
		return fmt.Errorf("acquire %v: key %v, want %v", ref, l.Key, want)
	}
	held := j.kf.held[l.Key.Key]
	if held.Region != ref.Region || held.Off > ref.Off || held.Off+held.Len < ref.Off+ref.Len {
		return fmt.Errorf("acquire %v: a key of %v", ref, held)
	}
	j.uses = append(j.uses, use{l, x, ref})
	return nil
}

// check compares the requests to the kernels and the states of the caches, and checks the
// cache's bounds.
func (j *job) check() error {
	if !slices.Equal(j.kf.log, j.ks.log) {
		return fmt.Errorf("the kernel is asked\n %v, want\n %v", j.kf.log, j.ks.log)
	}
	j.kf.log, j.ks.log = j.kf.log[:0], j.ks.log[:0]
	if j.kf.fault != nil {
		return j.kf.fault
	}
	s := j.fast.Stats()
	pinned, entries := j.slow.pinned()
	if s.PinnedBytes != pinned || s.Entries != entries || s.LimitBytes != j.slow.limit || pinned != j.kf.pinned {
		return fmt.Errorf("%d bytes in %d registrations of at most %d, want %d in %d of %d", s.PinnedBytes, s.Entries, s.LimitBytes, pinned, entries, j.slow.limit)
	}
	if s.PinnedBytes > j.fast.cfg.PinnedBytes || s.Entries > j.fast.cfg.Entries {
		return fmt.Errorf("%d bytes in %d registrations are over the budget", s.PinnedBytes, s.Entries)
	}
	for _, u := range j.uses { // registrations in use that were not ended stay pinned
		if _, ok := j.kf.held[u.lease.Key.Key]; !ok && !u.plain.dead {
			return fmt.Errorf("%v is in use and not registered", u.ref)
		}
	}
	return nil
}

func (j *job) run(steps int) error {
	for i := range steps {
		err := j.step()
		if err == nil {
			err = j.check()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

var jobs = flag.Uint64("regcache.jobs", 500, "jobs of 1,000 operations that the cache and the obvious one do")

// TestAgainstObvious compares the cache with one that searches a list.
func TestAgainstObvious(t *testing.T) {
	first := rand.Uint64()
	for i := range *jobs {
		if err := drawJob(first + i).run(1000); err != nil {
			t.Fatalf("seed %d: %v", first+i, err)
		}
	}
}

// FuzzStory lets the fuzzer choose seeds and lengths of stories.
func FuzzStory(f *testing.F) {
	f.Add(uint64(1), uint16(200))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		if err := drawJob(seed).run(int(steps % 2048)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	})
}
