package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// What ranks disagree on is said whole, in what travels to other sidecars.
func TestDisagreementsAreShort(t *testing.T) {
	const far = 65_535
	for kind := coll.Barrier; kind <= coll.Alltoallv; kind++ {
		ours := signatureOf(&shm.CollBlock{Kind: uint8(kind), Root: 4094, Count: 1, Elem: 8})
		for _, other := range []shm.CollBlock{
			{Kind: uint8(kind), Root: 4095, Count: 1, Elem: 8},
			{Kind: uint8(kind), Root: 4094, Count: 2, Elem: 8},
			{Kind: uint8(coll.ReduceScatter), Count: 1, Elem: 8},
		} {
			theirs := signatureOf(&other)
			if text := podlife.TextDisagrees + disagreement(ours, theirs, far); len(text) > abortText {
				t.Errorf("%d bytes, want at most %d: %s", len(text), abortText, text)
			}
		}
	}
}
