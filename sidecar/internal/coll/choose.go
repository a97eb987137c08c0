package coll

// row is a line of a table of algorithms. The table of a kind is searched from its first row on,
// and the first row that applies to a collective and whose algorithm can serve it is chosen.
type row struct {
	algorithm Algorithm
	bytes     int64 // applies up to this size (shape.bytes); 0: to all
	total     int64 // applies up to this size of the blocks of all ranks; 0: to all
	from      int   // applies from this number of ranks on
	ranks     int   // applies to this number of ranks only; 0: to all
	pods      int   // applies to ranks in this number of pods only; 0: to all
	class     class
}

// class names a condition of a row that is no bound of a number.
type class uint8

const (
	_ class = iota // no condition
	// acrossPods: several ranks are in one of several pods.
	acrossPods
	// fewRounds: the same, and the leaders exchange in about as few rounds as all ranks would.
	fewRounds
	// oneInPod: each rank is in a pod of its own.
	oneInPod
	// wideChunks: a ring passes on chunks that are worth its rounds.
	wideChunks
)

// builtin is the choice of algorithms for jobs without rules. The thresholds start from the values
// that MPICH has shipped for two decades. The best values differ between fabrics: a job can have
// rules of its own (Table).
var builtin = [...][]row{
	Barrier: {
		{algorithm: TwoLevel, class: acrossPods},
		{algorithm: Dissemination},
	},
	Bcast: {
		{algorithm: TwoLevel, class: acrossPods},
		{algorithm: Binomial, bytes: treeShortBytes},
		{algorithm: DoubleTree, from: 3, class: oneInPod},
		{algorithm: Binomial, bytes: bcastShortBytes},
		{algorithm: ScatterAllgather, from: bcastLongRanks},
		{algorithm: Binomial},
	},
	Reduce: {
		{algorithm: TwoLevel, class: acrossPods},
		{algorithm: Binomial, bytes: reduceShortBytes},
		{algorithm: Rabenseifner, bytes: treeShortBytes},
		{algorithm: DoubleTree, from: 3, class: oneInPod},
		{algorithm: Rabenseifner},
		{algorithm: Binomial}, // the only one for an operation that does not commute
	},
	Allreduce: {
		{algorithm: TwoLevel, class: acrossPods},
		{algorithm: RecursiveDoubling, bytes: allreduceShortBytes},
		{algorithm: Ring, class: wideChunks},
		{algorithm: Rabenseifner},
		{algorithm: RecursiveDoubling}, // the only one for an operation that does not commute
	},
	Scan: {{algorithm: RecursiveDoubling}},
	ReduceScatter: {
		{algorithm: RecursiveHalving, bytes: reduceScatterShortBytes},
		{algorithm: RecursiveDoubling, bytes: orderedShortBytes},
		{algorithm: Pairwise},
	},
	Gather:   {{algorithm: Binomial, bytes: rootedShortBytes, total: rootedTotalBytes}, {algorithm: Linear}},
	Gatherv:  {{algorithm: Linear}},
	Scatter:  {{algorithm: Binomial, bytes: rootedShortBytes, total: rootedTotalBytes}, {algorithm: Linear}},
	Scatterv: {{algorithm: Linear}},
	Allgather: {
		{algorithm: TwoLevel, bytes: ringChunkBytes - 1, class: fewRounds},
		{algorithm: RecursiveDoubling, total: allgatherShortBytes},
		{algorithm: Bruck, total: allgatherShortBytes},
		{algorithm: Ring},
	},
	Allgatherv: {{algorithm: Ring}},
	Alltoall: {
		{algorithm: TwoLevel, bytes: alltoallShortBytes, from: alltoallLevelRanks, class: acrossPods},
		{algorithm: Bruck, bytes: alltoallShortBytes, from: alltoallShortRanks},
		{algorithm: Pairwise},
	},
	Alltoallv: {{algorithm: Pairwise}}, // only the two ends of a block know its size
}

const (
	treeShortBytes      = 64<<10 - 1 // the vector of a larger bcast or reduce has segments
	bcastShortBytes     = 256<<10 - 1
	bcastLongRanks      = 8
	reduceShortBytes    = 16<<10 - 1
	allreduceShortBytes = 8 << 10
	ringChunkBytes      = 64 << 10 // from chunks of this size on, a ring of chunks
	// Up to this number of ranks that is no power of two, a ring serves vectors with such chunks:
	// in Rabenseifner's algorithm the ranks that have no partner would send the vector whole. With
	// smaller chunks, the rounds of a ring take longer than that.
	ringRanks      = 16
	ringShortBytes = 8 << 10
	// In two levels, a leader needs scratch memory for a whole vector. From this size on, a ring
	// of all ranks that is in use anyway needs a chunk of it, and so do shares in two levels.
	// The ring goes from pod to pod and crosses each boundary once: 2N bytes leave a pod.
	ringBytes               = 1 << 20
	reduceScatterShortBytes = 512 << 10
	orderedShortBytes       = 8 << 10
	allgatherShortBytes     = 64 << 10   // up to this size, a logarithmic number of rounds
	gatherRoundsMax         = 16         // up to this number of rounds, leaders exchange in a ring
	rootedShortBytes        = 64<<10 - 1 // up to blocks of this size, ranks forward blocks of others
	rootedTotalBytes        = 32 << 20   // up to this sum of blocks, they do: forwarding takes memory
	alltoallShortBytes      = 256        // up to blocks of this size, clients have memory to forward blocks
	alltoallShortRanks      = 8
	alltoallLevelRanks      = pairwiseWindow + 2 // with fewer, pairwise has one round
)

// shape has the parameters of a collective on which the choice of its algorithm depends. They are
// the same on all ranks, so that all ranks choose the same.
type shape struct {
	kind        Kind
	ranks       int
	count       int64 // elements, by which the vector or a block is divided
	bytes       int64 // the vector of Bcast, Reduce, Allreduce and Scan, all blocks of ReduceScatter, one block of the others
	total       int64 // bytes of one block for each rank
	commutative bool
	apart       bool // each rank is in a pod of its own
	layout      *Layout
}

func (p *Params) shape() shape {
	bytes := int64(p.Count) * int64(p.Elem)
	s := shape{kind: p.Kind, ranks: p.Size, count: int64(p.Count), bytes: bytes, commutative: p.Commutative, layout: p.Layout}
	s.apart = p.Layout.pods() == p.Size
	switch p.Kind {
	case Gather, Scatter, Allgather, Alltoall:
		s.total = bytes * int64(p.Size)
	case ReduceScatter:
		s.bytes = bytes * int64(p.Size)
		if p.Counts != nil {
			s.bytes = 0
			for _, c := range p.Counts {
				s.bytes += c * int64(p.Elem)
			}
		}
		s.total = s.bytes
	}
	return s
}

// Choose returns the algorithm for Auto. It returns Auto if p is invalid; then NewPlan returns the
// reason.
func Choose(p Params) Algorithm {
	if p.validate() != nil {
		return Auto
	}
	s := p.shape()
	return s.choose(p.Table)
}

// choose returns the algorithm by a job's table, which may be nil, or else by the built-in one.
func (s *shape) choose(t *Table) Algorithm {
	if t != nil {
		if a := s.chooseFrom(t.rows[s.kind]); a != Auto {
			return a
		}
	}
	return s.chooseFrom(builtin[s.kind])
}

// chooseFrom returns Auto if no row serves the collective, which the last built-in row does.
func (s *shape) chooseFrom(rows []row) Algorithm {
	for i := range rows {
		if r := &rows[i]; r.applies(s) && s.serves(r.algorithm) {
			return r.algorithm
		}
	}
	return Auto
}

func (r *row) applies(s *shape) bool {
	switch {
	case r.bytes != 0 && s.bytes > r.bytes, r.total != 0 && s.total > r.total, s.ranks < r.from,
		r.ranks != 0 && s.ranks != r.ranks, r.pods != 0 && s.layout.pods() != r.pods:
		return false
	}
	switch r.class {
	case acrossPods:
		return s.layout.pays()
	case oneInPod:
		return s.apart
	case fewRounds:
		return s.layout.pays() && gatherRounds(s.layout.pods()) <= max(gatherRoundsMax, levels(s.ranks))
	case wideChunks:
		chunk := s.bytes / int64(s.ranks)
		return chunk >= ringChunkBytes || s.ranks <= ringRanks && s.ranks != floorPower(s.ranks) && chunk >= ringShortBytes
	}
	return true
}

// serves reports whether an algorithm can serve the collective, in the scratch memory that each
// client allocates without knowing it (shm.CollScratch).
func (s *shape) serves(a Algorithm) bool { return s.misfit(a) == fitting && s.granted(a) }

// long reports whether clients have memory for one chunk of an allreduce that commutes.
func (s *shape) long() bool { return s.bytes >= ringBytes && s.bytes/int64(s.ranks) >= ringChunkBytes }

// shared reports whether an allreduce in two levels is in shares, of whose pieces only the last one
// is shorter than the others.
func (s *shape) shared() bool {
	many := int64(s.ranks)
	longest := (s.count + many - 1) / many
	return s.kind == Allreduce && s.commutative && s.long() && s.layout.equal() && (many-1)*longest <= s.count
}

// granted reports whether that scratch memory suffices for algorithm a.
func (s *shape) granted(a Algorithm) bool {
	switch s.kind {
	case Allreduce:
		return a == Ring || !s.commutative || !s.long() || a == TwoLevel && s.shared()
	case ReduceScatter:
		return a == Pairwise || s.bytes <= reduceScatterShortBytes
	case Gather, Scatter:
		return a == Linear || s.bytes <= rootedShortBytes && s.total <= rootedTotalBytes
	case Allgather:
		return a != Bruck || s.total <= allgatherShortBytes
	case Alltoall:
		return a == Pairwise || s.bytes <= alltoallShortBytes
	}
	return true
}
