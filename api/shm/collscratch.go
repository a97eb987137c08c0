package shm

import "math/bits"

// Limits of the schedules that need scratch (LAYOUT §5.4). An engine may choose among schedules,
// as long as the schedule needs no more scratch than CollScratch returns.
const (
	collHalvedBytes  = 512 << 10 // a reduce-scatter of more combines block by block
	collForwardBytes = 64 << 10  // blocks of at least this size in a gather or scatter are sent directly
	collForwardTotal = 32 << 20  // and so are blocks with a larger sum
	collRotateBytes  = 64 << 10  // a larger allgather has no scratch
	collBundleBytes  = 256       // larger blocks of an alltoall are sent one by one
	collRingBytes    = 1 << 20   // an allreduce of at least this size, and
	collRingShare    = 64 << 10  // of at least this size per rank, works on one share at a time
)

// CollScratch returns how many bytes of scratch are sufficient for the part of rank in the
// collective that b describes, on a communicator of so many ranks (LAYOUT §5.4). It reads the kind,
// flags, root, count and element size of b. counts is for a reduce-scatter: the elements of each
// rank's block, or nil if all have Count.
func CollScratch[N int | int64](b *CollBlock, rank, ranks int, counts []N) uint64 {
	if ranks < 2 {
		return 0
	}
	n := b.Count * b.Elem
	all := n * uint64(ranks)
	switch b.Kind {
	case CollReduce:
		if rank == int(b.Root) {
			return n
		}
		return 2 * n
	case CollAllreduce:
		return allreduceScratch(b, n, uint64(ranks))
	case CollScan:
		return n
	case CollReduceScatter:
		own := n
		if counts != nil {
			own, all = uint64(counts[rank])*b.Elem, 0
			for _, c := range counts {
				all += uint64(c) * b.Elem
			}
		}
		return max(2*min(all, collHalvedBytes), 6*own)
	case CollGather, CollScatter:
		if n >= collForwardBytes || all > collForwardTotal {
			return 0
		}
		return n * forwarded(rank, int(b.Root), ranks)
	case CollAllgather:
		if all <= collRotateBytes {
			return all
		}
	case CollAlltoall:
		if n <= collBundleBytes {
			return 3 * all
		}
	}
	return 0
}

func allreduceScratch(b *CollBlock, n, ranks uint64) uint64 {
	if b.Flags&CollCommutative == 0 || n < collRingBytes || n/ranks < collRingShare {
		return n
	}
	return (b.Count + ranks - 1) / ranks * b.Elem
}

// forwarded returns how many blocks pass through a rank in the binomial tree of a gather or scatter:
// its own and those of the ranks below it. It is 0 at the root, where the blocks are in the buffer,
// and at leaves.
func forwarded(rank, root, ranks int) uint64 {
	v := rank - root
	if v < 0 {
		v += ranks
	}
	if v == 0 || v&1 != 0 || v+1 == ranks {
		return 0
	}
	return uint64(min(1<<bits.TrailingZeros(uint(v)), ranks-v))
}
