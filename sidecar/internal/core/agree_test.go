package core

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/podlife"
	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
)

// The counts of a collective in which all ranks have them, and how its operation
// may be carried out, are what ranks agree on; where they put things is not.
func TestSignatureHasCounts(t *testing.T) {
	of := func(kind coll.Kind, flags uint8, counts, displs []int64) signature {
		b := shm.CollBlock{Kind: uint8(kind), Elem: 8, Flags: flags}
		if counts != nil {
			b.Vectors = 2
		}
		return signatureOf(&b, &[collVectors][]int64{counts, displs})
	}
	for _, kind := range []coll.Kind{coll.ReduceScatter, coll.Allgatherv} {
		ours := of(kind, 0, []int64{1, 2, 3}, []int64{0, 1, 3})
		if of(kind, 0, []int64{1, 2, 3}, []int64{0, 10, 30}) != ours {
			t.Errorf("%v: other places count as a disagreement", kind)
		}
		for _, counts := range [][]int64{{1, 2, 4}, {2, 1, 3}, {0, 3, 3}, {1, 2}} {
			if of(kind, 0, counts, nil) == ours {
				t.Errorf("%v: counts %v are taken for 1, 2, 3", kind, counts)
			}
		}
	}
	for _, kind := range []coll.Kind{coll.Reduce, coll.Allreduce, coll.Scan, coll.ReduceScatter} {
		if of(kind, shm.CollCommutative, nil, nil) == of(kind, 0, nil, nil) {
			t.Errorf("%v: a commutative operation is taken for another", kind)
		}
	}
}

// What ranks disagree on is said whole, in what travels to other sidecars.
func TestDisagreementsAreShort(t *testing.T) {
	const far = 65_535
	for kind := coll.Barrier; kind <= coll.Alltoallv; kind++ {
		ours := signatureOf(&shm.CollBlock{Kind: uint8(kind), Root: 4094, Count: 1, Elem: 8}, &[collVectors][]int64{})
		for _, other := range []shm.CollBlock{
			{Kind: uint8(kind), Root: 4095, Count: 1, Elem: 8},
			{Kind: uint8(kind), Root: 4094, Count: 2, Elem: 8},
			{Kind: uint8(coll.ReduceScatter), Count: 1, Elem: 8},
		} {
			theirs := signatureOf(&other, &[collVectors][]int64{})
			if text := podlife.TextDisagrees + disagreement(ours, theirs, far); len(text) > abortText {
				t.Errorf("%d bytes, want at most %d: %s", len(text), abortText, text)
			}
		}
	}
}
