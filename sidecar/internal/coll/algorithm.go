package coll

import "fmt"

// Algorithm is an algorithm of a collective operation.
type Algorithm uint8

const (
	// Auto is replaced by the result of Choose.
	Auto Algorithm = iota
	// Dissemination is the barrier in which round k signals 2^k ranks ahead.
	Dissemination
	// Binomial is a binomial tree.
	Binomial
	// Linear is a direct exchange of the root with every other rank, linearWindow of them in a
	// round.
	Linear
	// ScatterAllgather is a broadcast that scatters, then gathers in a ring.
	ScatterAllgather
	// Ring passes blocks from neighbour to neighbour.
	Ring
	// Bruck needs a logarithmic number of rounds for any number of ranks.
	Bruck
	// RecursiveDoubling exchanges all blocks or sums so far with ranks twice as far
	// away in every round.
	RecursiveDoubling
	// RecursiveHalving is a reduce-scatter that exchanges half as much in
	// every round.
	RecursiveHalving
	// Rabenseifner is RecursiveHalving followed by its mirror image.
	Rabenseifner
	// Pairwise exchanges directly with every rank, pairwiseWindow at once.
	Pairwise
	// TwoLevel combines within each pod, lets one rank of each pod exchange with those of the
	// other pods, and spreads the result within each pod. In a long allreduce each rank of a pod
	// does that for a share of the vector, and in an alltoall for a share of the other pods' ranks.
	TwoLevel
	// DoubleTree is a pair of binary trees, each for one half of the vector in segments.
	DoubleTree
)

var algorithmNames = [...]string{
	"auto", "dissemination", "binomial", "linear", "scatter-allgather", "ring", "bruck",
	"recursive-doubling", "recursive-halving", "rabenseifner", "pairwise", "two-level", "double-tree",
}

func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "unknown algorithm"
}

// ParseAlgorithm returns the algorithm with the given name, the inverse of String, for
// configuration.
func ParseAlgorithm(name string) (Algorithm, error) {
	for i, n := range algorithmNames {
		if n == name {
			return Algorithm(i), nil
		}
	}
	return Auto, fmt.Errorf("coll: no algorithm is named %q; use one of %v", name, algorithmNames)
}

var algorithmsOf = [...][]Algorithm{
	Barrier:       {Dissemination, TwoLevel},
	Bcast:         {Binomial, ScatterAllgather, DoubleTree, TwoLevel},
	Reduce:        {Binomial, Rabenseifner, DoubleTree, TwoLevel},
	Allreduce:     {RecursiveDoubling, Rabenseifner, Ring, TwoLevel},
	Scan:          {RecursiveDoubling},
	ReduceScatter: {RecursiveHalving, RecursiveDoubling, Pairwise},
	Gather:        {Binomial, Linear},
	Gatherv:       {Linear},
	Scatter:       {Binomial, Linear},
	Scatterv:      {Linear},
	Allgather:     {Ring, RecursiveDoubling, Bruck, TwoLevel},
	Allgatherv:    {Ring},
	Alltoall:      {Pairwise, Bruck, TwoLevel},
	Alltoallv:     {Pairwise},
}

// Counts counts collectives by Kind and Algorithm. Those of one rank have Auto.
type Counts [len(algorithmsOf)][len(algorithmNames)]uint64

// Algorithms returns the algorithms for k, without Auto. Some of them do not fit all Params;
// then NewPlan returns the reason.
func Algorithms(k Kind) []Algorithm {
	if int(k) >= len(algorithmsOf) {
		return nil
	}
	return append([]Algorithm(nil), algorithmsOf[k]...)
}

// reorders reports whether the algorithm may combine operands in another order than that of
// the ranks. Pairwise has a variant for each case.
func (a Algorithm) reorders() bool {
	return a == Rabenseifner || a == Ring || a == RecursiveHalving || a == TwoLevel || a == DoubleTree
}

// misfit is why an algorithm cannot serve a collective.
type misfit uint8

const (
	fitting     misfit = iota
	otherKind          // it is an algorithm of other kinds
	reordering         // the operation does not commute
	noPower            // the number of ranks is no power of two
	manyRanks          // more than packedRanksMax
	onePod             // there is one level only
	notPodByPod        // the blocks of a pod do not follow each other
	apart              // no pod has several ranks
)

// misfit returns why algorithm a cannot serve a collective, or fitting.
func (s *shape) misfit(a Algorithm) misfit {
	known := false
	for _, b := range algorithmsOf[s.kind] {
		known = known || a == b
	}
	switch {
	case !known:
		return otherKind
	case s.kind.reducing() && !s.commutative && a.reorders():
		return reordering
	case s.kind == Allgather && a == RecursiveDoubling && s.ranks&(s.ranks-1) != 0:
		return noPower
	case s.kind == Alltoall && a != Pairwise && s.ranks > packedRanksMax:
		return manyRanks
	case a == TwoLevel && s.layout.pods() < 2:
		return onePod
	case a == TwoLevel && s.kind == Allgather && !s.layout.gathers():
		return notPodByPod
	case a == TwoLevel && s.kind == Alltoall && !s.layout.pays():
		return apart
	}
	return fitting
}

// fits returns nil if algorithm a can serve p, whose other fields are valid.
func (a Algorithm) fits(p *Params) error {
	s := p.shape()
	switch s.misfit(a) {
	case otherKind:
		return fmt.Errorf("coll: %v cannot be done by %v; use auto or one of %v", p.Kind, a, algorithmsOf[p.Kind])
	case reordering:
		return fmt.Errorf("coll: %v by %v changes the order of operands; use auto for an operation that is not commutative", p.Kind, a)
	case noPower:
		return fmt.Errorf("coll: allgather by recursive-doubling needs a power of two, not %d ranks; use bruck or ring", p.Size)
	case manyRanks:
		return fmt.Errorf("coll: alltoall by %v is for at most %d ranks, not %d; use pairwise", a, packedRanksMax, p.Size)
	case onePod:
		return fmt.Errorf("coll: two-level %v needs ranks in more than one pod; give Pods or use auto", p.Kind)
	case notPodByPod:
		return fmt.Errorf("coll: two-level %v needs ranks in the order of their pods, and several in one of them; use auto", p.Kind)
	case apart:
		return fmt.Errorf("coll: two-level %v needs several ranks in a pod; use auto", p.Kind)
	}
	return nil
}
