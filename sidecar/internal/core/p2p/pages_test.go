package p2p

import (
	"math/rand/v2"
	"testing"

	"github.com/outrigger-hpc/outrigger/sidecar/internal/link"
)

// TestPagesAreBoundedByCredit checks that peers that keep within their credit, leave messages in as
// many pages as they can, and change the sizes of their messages, make the pool touch no more than
// their credit and two pages each, whatever classes they use in turn.
func TestPagesAreBoundedByCredit(t *testing.T) {
	const peers, window = 3, 64 << 10
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // of a test
	type message struct {
		of int
		at link.Ref
	}
	x := paged{pool: pool{region: RegionPool, limit: poolReserve(peers, peers*window)}}
	var of [peers]pages
	var credit [peers]uint64
	for i := range credit {
		credit[i] = window
	}
	var kept []message
	touched := func() (n uint64) {
		pages := map[uint64]bool{}
		for _, m := range kept {
			for at := m.at.Off / pageBytes; at <= (m.at.Off+m.at.Len-1)/pageBytes; at++ {
				pages[at] = true
			}
		}
		return uint64(len(pages)) * pageBytes
	}
	var most uint64
	for round := range 40 {
		size := poolClasses[round%len(poolClasses)]
		for i := range peers {
			for credit[i] >= size {
				ref, ok := x.keep(&of[i], size-uint64(rng.IntN(100)))
				if !ok {
					t.Fatalf("no room for %d bytes within the credit", size)
				}
				credit[i] -= size
				kept = append(kept, message{i, ref})
			}
		}
		n := touched()
		most = max(most, n)
		if want := uint64(peers * (window + 2*pageBytes)); n > want || x.inUse > want {
			t.Fatalf("round %d: messages touch %d bytes, %d are in use, want at most %d", round, n, x.inUse, want)
		}
		// One message stays in each page, and in every tenth round none does.
		pages := map[uint64]bool{}
		rest := kept[:0]
		for _, m := range kept {
			if at := m.at.Off / pageBytes; round%10 < 9 && !pages[at] && m.at.Len <= pageBytes/4 {
				pages[at] = true
				rest = append(rest, m)
				continue
			}
			credit[m.of] += x.free(&of[m.of], m.at)
		}
		kept = rest
		for x.warm > 0 {
			x.cool()
		}
	}
	if most < peers*window {
		t.Errorf("at most %d bytes were touched: the credit was not used", most)
	}
	for _, m := range kept {
		credit[m.of] += x.free(&of[m.of], m.at)
	}
	if x.inUse != 0 || credit != [peers]uint64{window, window, window} || of != [peers]pages{} {
		t.Errorf("%d bytes are in use, the credit is %v", x.inUse, credit)
	}
}
