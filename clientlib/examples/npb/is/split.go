package is

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"

// assign gives every rank a run of whole buckets: rank r has the buckets
// first[r] to first[r+1]. A rank's run ends with the bucket in which the keys
// so far reach its share of all keys. If one large bucket of an earlier rank
// has exceeded the rank's share already, the rank gets the next bucket
// nevertheless; it has none only if no bucket is left.
//
// totals are the global bucket sizes; first has one element more than ranks.
func assign(totals []int32, keys int, first []int) {
	ranks := len(first) - 1
	rank, sum := 0, 0
	_, share := bench.Block(keys, ranks, rank)
	first[0] = 0
	for b, n := range totals {
		sum += int(n)
		if sum >= share && rank < ranks {
			rank++
			first[rank] = b + 1
			if rank < ranks {
				_, share = bench.Block(keys, ranks, rank)
			}
		}
	}
	// Empty buckets at the end belong to the last rank that got any.
	for r := max(rank, 1); r <= ranks; r++ {
		first[r] = len(totals)
	}
}

// sumRange adds the sizes of buckets lo to hi.
func sumRange(sizes []int32, lo, hi int) int {
	sum := 0
	for _, n := range sizes[lo:hi] {
		sum += int(n)
	}
	return sum
}

// packed sets displs to the offsets of contiguous blocks, and returns the end of
// the last one.
func packed(counts, displs []int) int {
	end := 0
	for i, n := range counts {
		displs[i] = end
		end += n
	}
	return end
}
