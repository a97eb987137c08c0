package verbs

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestCastsLeaveNothing: casts that are posted, under way, or wait for Commit when their
// connection is lost or forgotten give their slots back, and none is taken without a
// connection, for memory of another domain, or of a size or notice that is none of theirs.
func TestCastsLeaveNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, receives string) {
		for n := range 36 {
			x := newBench(t, receives)
			k := x.register(2<<20, 1<<20)
			src := x.mem[:1+n*37%slotBytes] // inline, and not
			cast := func(times int) {
				for i := range times {
					x.a.Cast(0, src, k, uint64(i%2))
				}
			}
			cast(n)
			for range n % 7 {
				x.a.Poll(x.sa)
				x.b.Poll(x.sb)
			}
			cast(n / 2)
			if n%2 == 0 {
				x.a.Break(0)
				x.until("the end of the connection", func() bool { return len(x.sa.downs) > 0 })
			} else {
				x.a.Forget(0)
				x.a.Poll(x.sa)
			}
			if len(x.a.slots) != sendSlots {
				t.Fatalf("%d casts leave %d of %d slots", n, len(x.a.slots), sendSlots)
			}
			if x.a.Cast(0, src, k, 0) {
				t.Fatal("a cast without a connection")
			}
		}
		x := newBench(t, receives)
		k := x.register(2<<20, 1<<20)
		strange := k
		strange.Key |= 5 << domainShift
		src := x.mem[:slotBytes]
		if x.a.Cast(0, src, strange, 0) || x.a.Cast(0, src, link.Key{Key: 7}, 0) || x.a.Cast(0, src, k, 1<<noticeShift) {
			t.Error("a cast that cannot be")
		}
		if x.a.Cast(0, x.mem[:slotBytes+1], k, 0) {
			t.Error("a cast that fits no slot")
		}
	})
}
