package coll

// The thresholds of Auto. Bytes are those of the whole vector for Bcast, Reduce, Allreduce and
// ReduceScatter, of the whole result for Allgather, and of one block for Gather, Scatter and
// Alltoall. They start from the values that MPICH has shipped for two decades. The best values
// differ between fabrics; a configuration can name an algorithm where they are wrong.
// shm.CollScratch, by which clients allocate, bounds the scratch memory of the plans that the
// thresholds choose.
const (
	bcastLongBytes      = 256 << 10 // from this size on, scatter and allgather
	bcastLongRanks      = 8         // and from this many ranks on
	reduceLongBytes     = 16 << 10  // from this size on, Rabenseifner
	allreduceShortBytes = 8 << 10   // up to this size, recursive doubling
	ringChunkBytes      = 64 << 10  // from chunks of this size on, a ring of chunks
	// Up to this number of ranks that is no power of two, a ring serves vectors with such chunks:
	// in Rabenseifner's algorithm the ranks that have no partner would send the vector whole. With
	// smaller chunks, the rounds of a ring take longer than that.
	ringRanks      = 16
	ringShortBytes = 8 << 10
	// In two levels, a rank needs scratch memory for a whole vector. From this size on, a ring
	// that is in use anyway needs a chunk of it. It goes from pod to pod and crosses each
	// boundary once, so that as few bytes leave a pod as in two levels.
	ringBytes               = 1 << 20
	reduceScatterShortBytes = 512 << 10 // up to this size, recursive halving
	orderedShortBytes       = 8 << 10   // up to this size, if the operation does not commute, recursive doubling
	allgatherShortBytes     = 64 << 10  // up to this size, a logarithmic number of rounds
	gatherRoundsMax         = 16        // up to this number of rounds, leaders exchange in a ring
	rootedLongBytes         = 64 << 10  // from blocks of this size on, no rank forwards blocks of others
	rootedTotalBytes        = 32 << 20  // above this sum of blocks, no rank forwards either: forwarding takes memory
	alltoallShortBytes      = 256       // up to blocks of this size, Bruck
	alltoallShortRanks      = 8         // and from this many ranks on
)

// Choose returns the algorithm for Auto. It depends only on parameters that are the same on
// all ranks, so that all ranks choose the same. It returns Auto if p is invalid; then NewPlan
// returns the reason.
func Choose(p Params) Algorithm {
	if p.validate() != nil {
		return Auto
	}
	return choose(&p)
}

func choose(p *Params) Algorithm {
	bytes := int64(p.Count) * int64(p.Elem)
	switch p.Kind {
	case Barrier:
		if p.Layout.pays() {
			return TwoLevel
		}
		return Dissemination
	case Bcast:
		return chooseBcast(p, bytes)
	case Reduce:
		return chooseReduce(p, bytes)
	case Allreduce:
		return chooseAllreduce(p, bytes)
	case Scan:
		return RecursiveDoubling
	case ReduceScatter:
		return chooseReduceScatter(p, bytes)
	case Gather, Scatter:
		if bytes >= rootedLongBytes || bytes*int64(p.Size) > rootedTotalBytes {
			return Linear
		}
		return Binomial
	case Gatherv, Scatterv:
		return Linear
	case Allgather:
		return chooseAllgather(p, bytes)
	case Allgatherv:
		return Ring
	case Alltoall:
		if bytes <= alltoallShortBytes && p.Size >= alltoallShortRanks && p.Size <= bruckRanksMax {
			return Bruck
		}
	}
	return Pairwise
}

func chooseBcast(p *Params, bytes int64) Algorithm {
	switch {
	case p.Layout.pays():
		return TwoLevel
	case longBcast(p.Size, bytes):
		return ScatterAllgather
	}
	return Binomial
}

func longBcast(ranks int, bytes int64) bool {
	return bytes >= bcastLongBytes && ranks >= bcastLongRanks
}

func chooseReduce(p *Params, bytes int64) Algorithm {
	switch {
	case !p.Commutative:
		return Binomial
	case p.Layout.pays():
		return TwoLevel
	case bytes >= reduceLongBytes:
		return Rabenseifner
	}
	return Binomial
}

func chooseAllreduce(p *Params, bytes int64) Algorithm {
	switch {
	case !p.Commutative:
		return RecursiveDoubling
	case p.Layout.pays() && (bytes < ringBytes || bytes/int64(p.Size) < ringChunkBytes):
		return TwoLevel
	}
	return flatAllreduce(p.Size, bytes)
}

// flatAllreduce chooses among commutative algorithms without regard to pods.
func flatAllreduce(ranks int, bytes int64) Algorithm {
	switch {
	case bytes <= allreduceShortBytes:
		return RecursiveDoubling
	case bytes/int64(ranks) >= ringChunkBytes, ranks <= ringRanks && ranks != floorPower(ranks) && bytes/int64(ranks) >= ringShortBytes:
		return Ring
	}
	return Rabenseifner
}

func chooseReduceScatter(p *Params, block int64) Algorithm {
	bytes := block * int64(p.Size)
	if p.Counts != nil {
		bytes = 0
		for _, c := range p.Counts {
			bytes += c * int64(p.Elem)
		}
	}
	switch {
	case !p.Commutative && bytes <= orderedShortBytes:
		return RecursiveDoubling
	case p.Commutative && bytes <= reduceScatterShortBytes:
		return RecursiveHalving
	}
	return Pairwise
}

func chooseAllgather(p *Params, block int64) Algorithm {
	switch {
	case p.Layout.gathers() && block < ringChunkBytes && gatherRounds(p.Layout.pods()) <= max(gatherRoundsMax, levels(p.Size)):
		return TwoLevel
	case block*int64(p.Size) > allgatherShortBytes:
		return Ring
	case p.Size&(p.Size-1) == 0:
		return RecursiveDoubling
	}
	return Bruck
}
