package memory

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
)

// TestEverythingKeptIsCounted checks that the formula counts all state that other processes can
// make a sidecar keep, by kind. A new bound needs a line here; its number must be the one that
// the code that keeps the state enforces.
func TestEverythingKeptIsCounted(t *testing.T) {
	const here, ranks, pods = 16, 64, 4
	const kib, mib = int64(1) << 10, int64(1) << 20
	var all int64
	for what, bytes := range map[string]int64{
		"operations, all ranks":         64 * mib,
		"operations, each rank's share": here * 2048 * (984 + 24),
		"announcements, answers, locks": max(32*mib, pods*512*kib),
		"records of eager messages":     pods * mib / 256 * 300,
		"the same, each peer's share":   pods * 128 * kib,
		"lists of ranks":                512 * 1024 * 24,
		"handshakes of peers":           128 * 48 * kib,
		"sessions without a Hello":      (256 + 64) * 8 * kib,
		"requests at ports for metrics": 2 * 32 * 256 * kib,
		"traffic matrix":                here * ranks * 384,
		"fences":                        8 * mib,
		"meetings":                      24 * mib,
		"keys and values":               24 * mib,
		"rounds of the tree, both ways": 2 * 24 * mib,
		"connections without a rank":    2 * (2*here + 256) * 16 * kib,
		"commands for other pods":       (2*pods + 16) * 160 * kib,
		"the program (not by others)":   24 * mib,
	} {
		if bytes <= 0 {
			t.Errorf("%s: %d bytes", what, bytes)
		}
		all += bytes
	}
	if heap := (Sizes{MPI: true, Credit: CreditDefault}).Heap(here, ranks, pods); heap != all {
		t.Errorf("%d bytes in the formula, %d by the bounds", heap, all)
	}
	if most := int64(shm.MaxRequests) * (RequestCost + NumberCost); most > RanksKept {
		t.Errorf("one rank that has all of its requests open takes %d bytes of %d", most, RanksKept)
	}
	// The sum stays acceptable in the largest job.
	if heap := (Sizes{MPI: true, Credit: CreditDefault}).Heap(128, 128*4096, 4096); heap > 13<<30 {
		t.Errorf("the largest job: %d MiB", heap>>20)
	}
}
