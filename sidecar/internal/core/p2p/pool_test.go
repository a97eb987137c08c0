package p2p

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestPoolHoldsWhatIsGranted checks that peers within their credit always find room, whatever
// sizes they send one after another. In addition to each window there is room for one payload
// that passes through the pool and costs no credit: of an accumulate, or of a part of a
// message.
func TestPoolHoldsWhatIsGranted(t *testing.T) {
	const peers, window = 3, 1 << 20
	p := pool{region: RegionPool, limit: poolReserve(peers, peers*window)}
	for _, size := range poolClasses {
		var all, passing []link.Ref
		for range peers * window / size {
			ref, ok := p.get(size)
			if !ok {
				t.Fatalf("no room for %d bytes with %d of them in use", size, len(all))
			}
			all = append(all, ref)
		}
		for range peers {
			ref, ok := p.passing(size)
			if !ok || ref.Len != size {
				t.Fatalf("no room for %d bytes that pass with %d of them in use: %v", size, len(passing), ref)
			}
			passing = append(passing, ref)
		}
		for _, ref := range all {
			p.put(ref)
		}
		for _, ref := range passing {
			p.passed(ref)
		}
	}
	if p.inUse != 0 {
		t.Errorf("%d bytes are in use", p.inUse)
	}
}
