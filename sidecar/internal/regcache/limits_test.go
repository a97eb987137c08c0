package regcache

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestShortOfRegistrations: a few registrations go at once where their number is short.
// One that has many bytes and is alone is not among them, whoever asks.
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
