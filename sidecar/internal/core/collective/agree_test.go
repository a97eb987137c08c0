package collective

import (
	"testing"

	"github.com/outrigger-hpc/outrigger/api/shm"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/coll"
	"github.com/outrigger-hpc/outrigger/sidecar/internal/core/ranks"
)

// TestSignatureHasCounts checks that the signature of a collective whose counts are known to
// all ranks depends on them, and on how its operation may be carried out, but not on
// displacements.
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
	without := signatureOf(&shm.CollBlock{Kind: uint8(coll.ReduceScatter), Elem: 8, Count: 4}, &[collVectors][]int64{})
	if of(coll.ReduceScatter, 0, []int64{4, 4, 4}, []int64{0, 4, 8}) != without {
		t.Error("blocks of one size with and without counts are two collectives")
	}
	if of(coll.ReduceScatter, 0, []int64{4, 4, 5}, nil) == without || of(coll.ReduceScatter, 0, []int64{5, 5, 5}, nil) == without {
		t.Error("other counts are taken for blocks of 4")
	}
	for _, kind := range []coll.Kind{coll.Reduce, coll.Allreduce, coll.Scan, coll.ReduceScatter} {
		if of(kind, shm.CollCommutative, nil, nil) == of(kind, 0, nil, nil) {
			t.Errorf("%v: a commutative operation is taken for another", kind)
		}
	}
}

// TestDisagreementsTellBothSides checks that the text of a disagreement has the difference of
// both sides.
func TestDisagreementsTellBothSides(t *testing.T) {
	const big = 1 << 40
	block := func(kind coll.Kind, root uint32, count uint64, typ coll.Type, op coll.Op) *shm.CollBlock {
		return &shm.CollBlock{Kind: uint8(kind), Root: root, Count: count, Elem: 8, Type: uint8(typ), Op: uint8(op)}
	}
	allreduce := func(count uint64, typ coll.Type, op coll.Op) *shm.CollBlock {
		return block(coll.Allreduce, 0, count, typ, op)
	}
	for _, c := range []struct {
		ours, theirs *shm.CollBlock
		want         string
	}{
		{block(coll.Barrier, 0, 0, 0, 0), allreduce(100, coll.Float64, coll.Sum), ": barrier here, allreduce of 800 B (float64, sum) there"},
		{block(coll.Barrier, 3, 0, 0, 0), block(coll.Barrier, 4, 0, 0, 0), ": fence of window 3 here, fence of window 4 there"},
		{block(coll.Barrier, 3, 0, 0, 0), block(coll.Barrier, 0, 0, 0, 0), ": fence of window 3 here, barrier there"},
		{block(coll.Bcast, 1, 8, coll.Int64, 0), block(coll.Bcast, 2, 8, coll.Int64, 0), " on bcast: root 1 here, root 2 there"},
		{block(coll.Bcast, 1, 8, coll.Int64, 0), block(coll.Bcast, 1, 9, coll.Int64, 0), " on bcast: 64 B here, 72 B there"},
		{allreduce(8, coll.Int64, coll.Sum), allreduce(9, coll.Int64, coll.Sum), " on allreduce: 64 B (int64, sum) here, 72 B (int64, sum) there"},
		{allreduce(8, coll.Int64, coll.Sum), allreduce(8, coll.Float64, coll.Max), " on allreduce: 64 B (int64, sum) here, 64 B (float64, max) there"},
		{allreduce(8, coll.Int64, coll.User), allreduce(8, coll.Int64, coll.Max), " on allreduce: 64 B (int64, user) here, 64 B (int64, max) there"},
		{allreduce(10000, coll.Int64, coll.Sum), allreduce(10001, coll.Int64, coll.Sum), " on allreduce: 80000 bytes (int64, sum) here, 80008 bytes (int64, sum) there"},
		{allreduce(big, coll.Int64, coll.Sum), allreduce(2*big, coll.Int64, coll.Sum), " on allreduce: 8 TiB (int64, sum) here, about 16 TiB (int64, sum) there"},
	} {
		none := &[collVectors][]int64{}
		if got := textOf(&comm{group: &group{size: 4}}, identity(c.ours, none), identity(c.theirs, none), true); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// textOf returns the text for ours against theirs, of which an eager message or an
// announcement has arrived.
func textOf(m *comm, ours, theirs localSignature, eager bool) string {
	its := theirs.Immediate
	if !eager {
		its = ranks.ImmediateOf(its.Word(), theirs.announced)
	}
	return disagreement(m, &ours, its)
}

// TestDisagreementsOfRoundedSizes: a message carries a size rounded down, and the text does
// not claim more.
func TestDisagreementsOfRoundedSizes(t *testing.T) {
	const elem = 4
	block := func(bytes uint64, typ coll.Type, op coll.Op, flags uint8) localSignature {
		b := shm.CollBlock{Kind: uint8(coll.Allreduce), Count: bytes / elem, Elem: elem, Type: uint8(typ), Op: uint8(op), Flags: flags}
		return identity(&b, &[collVectors][]int64{})
	}
	of := func(bytes uint64) localSignature { return block(bytes, coll.Int32, coll.Sum, 0) }
	for _, c := range []struct {
		ours, theirs localSignature
		eager        bool
		want         string
	}{
		{of(8 << 20), of(8<<20 + 8), false, "8388608 bytes (int32, sum) here, about 8 MiB (int32, sum) there: another size, counts or order"},
		{of(8<<20 + 8), of(8 << 20), false, "8388616 bytes (int32, sum) here, about 8 MiB (int32, sum) there: another size, counts or order"},
		{of(4000000), of(4000004), false, "4000000 bytes (int32, sum) here, about 3.8 MiB (int32, sum) there: another size, counts or order"},
		{of(4000000), of(4000004), true, "4000000 bytes (int32, sum) here, about 3.8 MiB (int32, sum) there: another size, counts or order"},
		{of(4000004), block(4000004, coll.Float32, coll.Sum, 0), false, "4000004 bytes (int32, sum) here, about 3.8 MiB (float32, sum) there"},
		{of(4000004), block(4000004, coll.Float32, coll.Sum, 0), true, "4000004 bytes (int32, sum) here, about 3.8 MiB (float32, sum) there"},
		{of(4000004), of(4010000), true, "4000004 bytes (int32, sum) here, about 4009984 bytes (int32, sum) there"},
		{of(8 << 20), of(4 << 20), false, "8 MiB (int32, sum) here, about 4 MiB (int32, sum) there"},
		{of(64), of(72), false, "64 B (int32, sum) here, 72 B (int32, sum) there"},
		{
			block(64, coll.Int32, coll.User, shm.CollCommutative), block(64, coll.Int32, coll.User, 0), true,
			"64 B (int32, user) on both, and the operation is commutative here, but not there",
		},
	} {
		if got, want := textOf(&comm{group: &group{size: 4}}, c.ours, c.theirs, c.eager), " on allreduce: "+c.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestDisagreementsOfHighNumbers: a message carries 12 bits of a root, and 29 of a window's
// number.
func TestDisagreementsOfHighNumbers(t *testing.T) {
	of := func(kind coll.Kind, root uint32) localSignature {
		return identity(&shm.CollBlock{Kind: uint8(kind), Root: root, Count: 1, Elem: 8}, &[collVectors][]int64{})
	}
	for _, c := range []struct {
		ours, theirs localSignature
		want         string
	}{
		{of(coll.Barrier, 4097), of(coll.Barrier, 1), ": fence of window 4097 here, fence of window 1 there"},
		{of(coll.Barrier, 1), of(coll.Barrier, 4097), ": fence of window 1 here, fence of window 4097 there"},
		{of(coll.Barrier, 0), of(coll.Barrier, 4097), ": barrier here, fence of window 4097 there"},
		{of(coll.Barrier, 4096), of(coll.Barrier, 0), ": fence of window 4096 here, barrier there"},
		{of(coll.Barrier, 1), of(coll.Barrier, 1<<29-1), ": fence of window 1 here, fence of window 536870911 there"},
		{of(coll.Barrier, 1), of(coll.Barrier, 1<<29+4097), ": fence of window 1 here, fence of a window whose number is 1 modulo 4096 there"},
		{of(coll.Bcast, 4100), of(coll.Bcast, 5), " on bcast: root 4100 here, root 5 modulo 4096 there"},
	} {
		if got := textOf(&comm{group: &group{size: 5000}}, c.ours, c.theirs, true); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestDisagreementInACommunicator checks that ranks of a communicator are reported by their
// world ranks, too.
func TestDisagreementInACommunicator(t *testing.T) {
	m := &comm{context: 4, group: &group{size: 2, ranks: []uint32{1, 3}}}
	none := &[collVectors][]int64{}
	bcast := func(root uint32) localSignature {
		return identity(&shm.CollBlock{Kind: uint8(coll.Bcast), Root: root, Count: 1, Elem: 8}, none)
	}
	const want = " on bcast: root 0 (world rank 1) here, root 1 (world rank 3) there (communicator 4)"
	if got := textOf(m, bcast(0), bcast(1), true); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestParticularsOfAnAnnouncement checks that an announcement carries fewer bits of a size,
// and everything else of a detail.
func TestParticularsOfAnAnnouncement(t *testing.T) {
	for size := uint64(1); size < 1<<48; size = size*3 + 1 {
		b := shm.CollBlock{Kind: uint8(coll.Allreduce), Count: size, Elem: 1, Type: uint8(coll.Complex128), Op: uint8(coll.User)}
		whole := detailOf(&b, size)
		short := detail(whole.announced())
		if whole.announced() >= 1<<announcedBits || !short.known() || short.how(coll.Allreduce) != whole.how(coll.Allreduce) {
			t.Fatalf("size %d: %x became %x", size, whole, short)
		}
		if w := whole.size(); w > size || size-w > size>>(mantissaBits-1) {
			t.Fatalf("a message says %d bytes of %d", w, size)
		}
		if s := short.size(); size < 1<<41 && (s > size || size-s > size>>9) {
			t.Fatalf("an announcement says %d bytes of %d", s, size)
		}
	}
}
