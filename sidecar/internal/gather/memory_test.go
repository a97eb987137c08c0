package gather

import (
	"runtime"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/regcache"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/reuse"
)

// frugal is a device that takes everything, and keeps of each registration what
// the verbs link does: a key, a handle and a place.
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

// TestMemoryAtTheBound: what a sidecar keeps to know buffers and registrations,
// as many as there may be, is within what the formula has for it.
func TestMemoryAtTheBound(t *testing.T) {
	const bytes, page, most, buffers = 512 << 20, 4096, 131072, 1 << 18
	local, remote := &frugal{map[uint64][3]uint64{}}, &frugal{map[uint64][3]uint64{}}
	before := heap()
	c, err := New(Config{Reuse: reuse.Config{Frequent: -1}, Local: regcache.Config{PinnedBytes: bytes}, Remote: &regcache.Config{PinnedBytes: bytes}}, local, remote)
	if err != nil {
		t.Fatal(err)
	}
	const region = link.Region(1)
	c.AddRegion(region, 0, 2*bytes)
	for _, cache := range []*regcache.Cache{c.local, c.remote} {
		for i := range uint64(most) {
			lease, ok := cache.Acquire(link.Ref{Region: region, Off: 2 * i * page, Len: page})
			if !ok {
				t.Fatalf("registration %d is refused", i)
			}
			cache.Release(lease)
		}
	}
	c.Costs().Calibrate(0, []reuse.Sample{{Bytes: page, NS: 2000}}, []reuse.Sample{{Bytes: page, NS: 4e9}}, 60)
	for i := range uint64(buffers) {
		c.table.Use(0, 0, link.Ref{Region: region, Off: i * 2048, Len: 2048})
	}
	if n := c.table.Session(0).Seen; n < buffers/2 {
		t.Errorf("%d buffers are known", n)
	}
	used := heap() - before
	t.Logf("%d MiB for %d and %d registrations", used>>20, len(local.regions), len(remote.regions))
	if len(local.regions)+len(remote.regions) < most {
		t.Errorf("%d and %d registrations are not the bound", len(local.regions), len(remote.regions))
	}
	if used > memory.Registrations {
		t.Errorf("%d bytes for registrations, the formula has %d", used, memory.Registrations)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
