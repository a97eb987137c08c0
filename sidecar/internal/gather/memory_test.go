package gather

import (
	"flag"
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// frugal is a device that registers everything, and stores for each registration what the
// verbs link does: a key, a handle and an address.
type frugal struct{ regions map[uint64][3]uint64 }

func (f *frugal) Register(r link.Ref) (link.Key, error) {
	k := link.Key{Key: uint64(len(f.regions) + 1), Addr: r.Off}
	f.regions[k.Key] = [3]uint64{k.Key, r.Off, r.Len}
	return k, nil
}

func (f *frugal) Deregister(keys []link.Key) {
	for _, k := range keys {
		delete(f.regions, k.Key)
	}
}

// Flags for the pod whose sidecar TestMemoryAtTheBound measures; e2e/memory runs the test
// for other pods, in a control group.
var (
	ranks    = flag.Int("memory.ranks", 1, "ranks of the pod")
	arenaMiB = flag.Int("memory.arena", 1024, "arena of each, MiB")
)

// TestMemoryAtTheBound checks that the memory of a sidecar that registers every buffer
// (tuning.reuse: always), for its tables of buffers and registrations, is within the
// formula. There are as many as the bounds permit, and each page of each rank's arena has
// been registered once for this side and once for peers, after which the maps of pages
// are complete.
func TestMemoryAtTheBound(t *testing.T) {
	const bytes, page, most, buffers = 512 << 20, 4096, 131072, 1 << 18
	local, remote := &frugal{map[uint64][3]uint64{}}, &frugal{map[uint64][3]uint64{}}
	before := heap()
	c, err := New(Config{Sessions: *ranks, Reuse: reuse.Config{Frequent: -1}, Local: regcache.Config{PinnedBytes: bytes}, Remote: &regcache.Config{PinnedBytes: bytes}}, local, remote)
	if err != nil {
		t.Fatal(err)
	}
	arena := uint64(*arenaMiB) << 20
	for r := range *ranks {
		c.AddRegion(link.Region(r+1), uint32(r), arena)
	}
	for _, cache := range []*regcache.Cache{c.local, c.remote} {
		// Wide steps first: one registration for each leaf of the map. Then pages that do
		// not touch each other, because adjacent ones would be merged.
		for _, step := range []uint64{4 << 20, 2 * page} {
			n := 0
			for off := uint64(0); off < arena && n < 2*most; off += step {
				for r := 0; r < *ranks && n < 2*most; r++ {
					lease, ok := cache.Acquire(link.Ref{Region: link.Region(r + 1), Off: off, Len: page})
					if !ok {
						t.Fatalf("rank %d: the registration at %d is refused", r, off)
					}
					cache.Release(lease)
					n++
				}
			}
		}
	}
	c.Costs().Calibrate(0, []reuse.Sample{{Bytes: page, NS: 2000}}, []reuse.Sample{{Bytes: page, NS: 4e9}}, 60)
	for i := range uint64(buffers) {
		r := i % uint64(*ranks)
		c.table.Use(reuse.Session(r), 0, link.Ref{Region: link.Region(r + 1), Off: i / uint64(*ranks) * 2048 % arena, Len: 2048})
	}
	used := heap() - before
	// The formula has arena/128 for the page tables of a rank. The kernel uses at most 18 bytes a
	// page of that; the rest may be used here.
	share := int64(*ranks) * int64(arena/128-arena/page*18)
	t.Logf("%d ranks of %d MiB: %d KiB for %d and %d registrations and %d buffers; the formula has %d", *ranks, *arenaMiB, used>>10, len(local.regions), len(remote.regions), c.table.Session(0).Seen*uint64(*ranks), (memory.Registrations+share)>>10)
	if alone := *ranks == 1 && arena == 2*most*page; alone && len(local.regions)+len(remote.regions) < 2*most { // otherwise the shares are used up earlier
		t.Errorf("%d and %d registrations are not the bound", len(local.regions), len(remote.regions))
	}
	if used > memory.Registrations+share {
		t.Errorf("%d bytes for registrations, the formula has %d", used, memory.Registrations+share)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
