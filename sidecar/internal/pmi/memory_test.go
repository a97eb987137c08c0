package pmi

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/outrigger-hpc/outrigger/api/memory"
)

// ranksOfMany is the number of ranks of MPI programs that meet in this test. The memory
// kept for them is less than what the formula has for one kind of it.
const ranksOfMany = 16 << 10

// TestMemoryOfALargeJob checks that the memory that a sidecar keeps while ranks meet, the
// frame of the parent and the keys of all ranks, fits the formula. MPICH puts one key of
// some 200 bytes for each rank, Open MPI's PMIx some 300.
func TestMemoryOfALargeJob(t *testing.T) {
	const perPod = 128
	before := alive()
	s := newSpace(mapping([]int{ranksOfMany}), 0)
	var whole []byte
	for pod := range ranksOfMany / perPod {
		p := newSpace("", spaceShare(perPod, ranksOfMany))
		for r := range perPod {
			rank := pod*perPod + r
			if err := p.put(rank, fmt.Sprintf("P%d-businesscard", rank), strings.Repeat("x", 300)); err != nil {
				t.Fatal(err)
			}
		}
		whole = appendPiece(whole, pod, p.export())
	}
	sent := append([]byte(nil), whole...) // sent to the children
	all, err := pieces(ranksOfMany/perPod, whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, piece := range all {
		if err := s.admit(piece); err != nil {
			t.Fatal(err)
		}
	}
	used := alive() - before
	if len(s.all) < ranksOfMany {
		t.Errorf("%d keys of %d ranks", len(s.all), ranksOfMany)
	}
	t.Logf("%d KiB for %d keys", used>>10, len(s.all))
	if most := memory.LaunchBytes(ranksOfMany); used > most {
		t.Errorf("%d bytes, want at most %d", used, most)
	}
	runtime.KeepAlive(whole)
	runtime.KeepAlive(sent)
	runtime.KeepAlive(s)
}

func alive() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
