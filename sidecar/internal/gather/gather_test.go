package gather

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// device is a link that registers up to a limit.
type device struct {
	link.Remote
	limit, pinned uint64
	next          uint64
	keys          map[uint64]link.Ref
	fault         error
}

func (d *device) Register(ref link.Ref) (link.Key, error) {
	if d.pinned+ref.Len > d.limit {
		return link.Key{}, errors.New("cannot allocate memory")
	}
	d.next++
	d.pinned += ref.Len
	d.keys[d.next] = ref
	return link.Key{Key: d.next}, nil
}

func (d *device) Deregister(k link.Key) {
	ref, ok := d.keys[k.Key]
	if !ok {
		d.fault = fmt.Errorf("key %d is not registered", k.Key)
	}
	d.pinned -= ref.Len
	delete(d.keys, k.Key)
}

const (
	own   = link.Region(1)
	arena = link.Region(4)
)

func over(t *testing.T, limit uint64, cfg Config) (*Remote, *device) {
	t.Helper()
	d := &device{limit: limit, keys: map[uint64]link.Ref{}}
	r, err := Over(d, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.AddRegion(arena, 0, 1<<30)
	copies := []reuse.Sample{{Bytes: 0, NS: 0}, {Bytes: 4096, NS: 1000}}
	for _, p := range []reuse.Path{reuse.PathWrite, reuse.PathSend, reuse.PathPut, reuse.PathGet} {
		r.Costs().Calibrate(p, copies, []reuse.Sample{{Bytes: 4096, NS: 40_000}}, 60)
	}
	return r, d
}

func at(page, n uint64) link.Ref { return link.Ref{Region: arena, Off: page * 4096, Len: n} }

// use sends each of n buffers once.
func use(r *Remote, n uint64) (gathered int) {
	for i := range n {
		if l, ok := r.Choose(reuse.PathSend, at(i, 2048)); ok {
			r.Done(l)
			gathered++
		}
	}
	return gathered
}

// TestRegisteredOnce checks that buffers that are used again are registered once each,
// and then not copied any more.
func TestRegisteredOnce(t *testing.T) {
	r, d := over(t, 1<<40, Config{})
	for range 1000 {
		use(r, 16)
	}
	c := r.Buffers(0)
	if c.Seen != 16 || c.Frequent != 16 || c.Registered != 16 || d.next != 16 || c.CopiedBytes > c.GatheredBytes/20 {
		t.Fatalf("%+v, %d registrations", c, d.next)
	}
	if c.CopiedBytes+c.GatheredBytes != 16*1000*2048 {
		t.Fatalf("bytes are missing: %+v", c)
	}
}

// TestSmallBudget uses more buffers than can be registered, in turn. Each eviction makes
// its buffer be copied again; the sum must cost at most twice what copying everything
// would.
func TestSmallBudget(t *testing.T) {
	r, d := over(t, 1<<40, Config{Local: regcache.Config{PinnedBytes: 64 << 10}})
	for range 3000 {
		use(r, 32)
	}
	local, _ := r.Caches()
	c := r.Buffers(0)
	if local.Evictions == 0 || d.pinned > 64<<10 || c.CopiedBytes == 0 || c.GatheredBytes == 0 {
		t.Fatalf("%+v %+v", c, local)
	}
	const copied, found, registered, granted = 500.0, 60.0, 40_000.0, 1e6
	uses, copies := 3000.0*32, float64(c.CopiedBytes)/2048
	if cost := uses*found + copies*copied + float64(d.next)*registered; cost > 2*uses*copied+granted {
		t.Fatalf("%.0f copies and %d registrations cost %.0f ns; without registrations it is %.0f", copies, d.next, cost, uses*copied)
	}
}

// TestEvictedComesBack checks that a buffer whose registration was evicted is registered
// again when it is used again as often.
func TestEvictedComesBack(t *testing.T) {
	r, d := over(t, 1<<40, Config{Local: regcache.Config{PinnedBytes: 4096}})
	for round := range 4 {
		for _, page := range []uint64{0, 10} {
			gathered := false
			for range 1000 {
				l, ok := r.Choose(reuse.PathSend, at(page, 2048))
				if gathered = ok; ok {
					r.Done(l)
				}
			}
			if !gathered || d.pinned != 4096 {
				t.Fatalf("round %d: after a thousand uses it is copied; %+v", round, r.Buffers(0))
			}
		}
	}
}

// TestEndSession checks that the next rank with a session's number begins without its
// buffers.
func TestEndSession(t *testing.T) {
	r, _ := over(t, 1<<40, Config{})
	for range 1000 {
		use(r, 16)
	}
	r.RetireRegion(arena)
	r.EndSession(0)
	if c := r.Buffers(0); c.Seen != 0 || c.Frequent != 0 || c.Registered != 0 || c.CopiedBytes != 0 || c.GatheredBytes != 0 {
		t.Errorf("%+v", c)
	}
	for r.Settle(4) {
	}
	if c := r.Buffers(0); c.PinnedBytes != 0 {
		t.Errorf("%+v", c)
	}
	r.AddRegion(arena, 0, 1<<30) // the same number
	if n := use(r, 16); n != 0 {
		t.Errorf("%d buffers of another rank are gathered from at their first use", n)
	}
	for range 1000 {
		use(r, 16)
	}
	if c := r.Buffers(0); c.Seen > 16 || c.Frequent != 16 || c.Registered != 16 {
		t.Errorf("%+v", c)
	}
}

// TestRefused checks that if the kernel registers nothing, everything is copied, and the
// kernel is seldom asked.
func TestRefused(t *testing.T) {
	r, _ := over(t, 0, Config{})
	for range 2000 {
		if n := use(r, 16); n != 0 {
			t.Fatal("gathered from memory that is not registered")
		}
	}
	local, _ := r.Caches()
	if c := r.Buffers(0); local.Refusals > 100 || c.CopiedBytes != 2000*16*2048 || c.Frequent != 0 {
		t.Fatalf("%+v %+v", c, local)
	}
}

// TestRemote checks that a registration whose operation ended in order serves the next
// one, and that one whose operation ended early does not, and ends for all peers.
func TestRemote(t *testing.T) {
	r, d := over(t, 1<<40, Config{Remote: &regcache.Config{}})
	register := func(ref link.Ref) link.Key {
		k, err := r.Register(ref)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for range 100 {
		r.Release(register(at(3, 64<<10)))
	}
	if d.next != 1 {
		t.Fatalf("%d registrations of one buffer", d.next)
	}
	a, b := register(at(3, 64<<10)), register(at(4, 100))
	r.Deregister(a)
	if len(d.keys) != 0 {
		t.Fatal("an operation ended early, and its peer still reaches the memory")
	}
	r.Release(b)
	if k := register(at(4, 100)); k.Key == b.Key {
		t.Fatal("a registration that has ended is used again")
	}
	mine := register(link.Ref{Region: own, Len: 100})
	r.Release(mine)
	if _, ok := d.keys[mine.Key]; ok || d.fault != nil {
		t.Fatalf("the engine's own memory is the link's: %v", d.fault)
	}
}

// TestNotCached checks that without a cache registrations for peers end with their use.
func TestNotCached(t *testing.T) {
	r, d := over(t, 1<<40, Config{})
	k, err := r.Register(at(0, 100))
	if err != nil {
		t.Fatal(err)
	}
	r.Release(k)
	if len(d.keys) != 0 || d.fault != nil {
		t.Fatalf("%d registrations left; %v", len(d.keys), d.fault)
	}
}

// TestDropRegion checks that nothing of a region is registered when its memory is
// unmapped, however it was used, and that later releases do no harm.
func TestDropRegion(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		limit := uint64(1 << 40)
		if rng.IntN(2) == 0 { // which the caches share
			limit = 4096 * (1 + rng.Uint64N(80))
		}
		r, d := over(t, limit, Config{Remote: &regcache.Config{}, Local: regcache.Config{PinnedBytes: 1 << 20}})
		var leases []Lease
		var keys []link.Key
		for range 2000 {
			switch rng.IntN(4) {
			case 0:
				if k, err := r.Register(at(rng.Uint64N(64), 1+rng.Uint64N(9000))); err == nil {
					keys = append(keys, k)
				}
			case 1:
				r.Invalidate(at(rng.Uint64N(64), 5000))
			default:
				if l, ok := r.Choose(reuse.PathPut, at(rng.Uint64N(8), 4096)); ok {
					leases = append(leases, l)
				}
			}
		}
		r.DropRegion(arena)
		if len(d.keys) != 0 {
			t.Fatalf("seed %d: %d registrations are left", seed, len(d.keys))
		}
		for _, l := range leases {
			r.Done(l)
		}
		for _, k := range keys {
			if rng.IntN(2) == 0 {
				r.Release(k)
			} else {
				r.Deregister(k)
			}
		}
		if d.fault != nil {
			t.Fatalf("seed %d: %v", seed, d.fault)
		}
	}
}

// TestChooseAllocates checks that Choose never allocates.
func TestChooseAllocates(t *testing.T) {
	r, _ := over(t, 1<<40, Config{})
	for range 500 {
		use(r, 4)
	}
	page := uint64(1000)
	if n := testing.AllocsPerRun(1000, func() {
		page++
		r.Choose(reuse.PathSend, at(page, 2048))
		use(r, 4)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestOneLimit checks that the limit of the kernel, which counts both caches together, is
// shared: idle registrations of the cache that was first do not prevent those of the
// other for ever.
func TestOneLimit(t *testing.T) {
	const limit = 64 << 12
	fill := func(r *Remote, from uint64) (registered int) {
		for i := range uint64(64) {
			if k, err := r.Register(at(from+2*i, 4096)); err == nil {
				r.Release(k)
				registered++
			}
		}
		return registered
	}
	send := func(r *Remote) (gathered int) {
		for range 1000 {
			gathered = use(r, 16)
		}
		return gathered
	}
	t.Run("peers first", func(t *testing.T) {
		r, _ := over(t, limit, Config{Remote: &regcache.Config{}})
		fill(r, 1000)
		if n := send(r); n != 16 {
			t.Errorf("%d of 16 buffers are gathered from, in addition to unused registrations for peers; %+v", n, r.Buffers(0))
		}
	})
	t.Run("sent from first", func(t *testing.T) {
		r, d := over(t, limit, Config{Remote: &regcache.Config{}})
		for i := range uint64(64) {
			l, ok := r.Pin(at(2*i, 4096))
			if !ok {
				t.Fatal("refused")
			}
			r.Done(l)
		}
		if n := fill(r, 1000); n != 64 || d.fault != nil {
			t.Errorf("%d of 64 are registered for peers, in addition to unused local registrations; %v", n, d.fault)
		}
		if _, peers := r.Caches(); peers.PinnedBytes < limit*3/8 || peers.PinnedBytes > limit*5/8 {
			t.Errorf("peers have %d pages of 64, and the others had them first", peers.PinnedBytes>>12)
		}
	})
}

// TestNothingPromised checks that if a buffer's registration was evicted while its rank's
// part of the table is not observed, Gathers does not promise a gather that Choose does
// not make.
func TestNothingPromised(t *testing.T) {
	r, _ := over(t, 1<<40, Config{Reuse: reuse.Config{Buckets: 16, Window: 64, Frequent: 0.9}})
	for range 200 {
		use(r, 1)
	}
	if !r.Gathers(reuse.PathSend, at(0, 2048)) || r.Buffers(0).Frequent != 1 {
		t.Fatalf("nothing is registered: the test shows nothing: %+v", r.Buffers(0))
	}
	r.Invalidate(at(0, 4096))
	for i := range uint64(130) { // two windows in which nothing is gathered
		r.Choose(reuse.PathSend, at(1+i, 2048))
	}
	if !r.Buffers(0).Stopped {
		t.Fatalf("the table is observed: the test shows nothing: %+v", r.Buffers(0))
	}
	for range 10 {
		if !r.Gathers(reuse.PathSend, at(0, 2048)) {
			continue
		}
		if _, ok := r.Choose(reuse.PathSend, at(0, 2048)); !ok {
			t.Fatal("a payload that was to be gathered is copied")
		}
	}
}
