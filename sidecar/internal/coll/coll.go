// Package coll plans collective operations: what each rank of a communicator sends, receives
// and computes, and in which order.
//
// A [Plan] is the part of one rank. It is a sequence of rounds that are made on demand, so
// that a Plan over a thousand ranks is as small as one over two. The package moves no bytes
// itself: the engine starts the sends and receives of a round together, waits for them, runs
// the local steps in order and continues with the next round. [Apply] runs reductions over the
// predefined types.
//
// The rounds of all ranks have the same numbers, with empty rounds for ranks that have nothing
// to do, so that the number of the round is the tag of its messages.
//
// The algorithms are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective
// Communication Operations in MPICH" (2005), Bruck et al., "Efficient Algorithms for
// All-to-All Communications in Multiport Message-Passing Systems" (1997), Sanders, Speck and
// Träff, "Two-tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan" (2009), and paper
// 001, section 4.2.2, for the groups of four in alltoall.
package coll

import "fmt"

// Kind is a collective operation. MPI 4.1, chapter 6, defines them.
type Kind uint8

// The kinds and the buffers they use; sizes are in elements. InPlace is
// described at Params.
const (
	// Barrier uses no buffer.
	Barrier Kind = iota + 1
	// Bcast: Out[Count] on every rank; at the root it holds the data.
	Bcast
	// Reduce: In[Count] everywhere, Out[Count] at the root.
	Reduce
	// Allreduce and Scan (inclusive): In[Count], Out[Count].
	Allreduce
	Scan
	// ReduceScatter: In[sum of Counts], Out[Counts[Rank]]; without Counts
	// every block has Count elements.
	ReduceScatter
	// Gather: In[Count] everywhere, Out[Size*Count] at the root.
	Gather
	// Gatherv: In[own count], and at the root Out by Counts and Displs.
	Gatherv
	// Scatter: In[Size*Count] at the root, Out[Count] everywhere.
	Scatter
	// Scatterv: at the root In by Counts and Displs, Out[own count].
	Scatterv
	// Allgather: In[Count], Out[Size*Count].
	Allgather
	// Allgatherv: In[Counts[Rank]], Out by Counts and Displs.
	Allgatherv
	// Alltoall: In[Size*Count], Out[Size*Count].
	Alltoall
	// Alltoallv: In by SCounts and SDispls, Out by RCounts and RDispls.
	Alltoallv
)

// Params describes an operation, and this rank's part in it. Kind, Size, Root, Elem,
// Commutative, Algorithm, Table and Pods must be the same on all ranks, and so must Count or Counts
// where MPI requires that.
type Params struct {
	Kind Kind
	Rank int // 0 to Size-1
	Size int // 1 to MaxRanks
	Root int // root of the rooted kinds

	Count int // elements; Kind says of which buffer
	Elem  int // bytes an element, 1 to MaxElem; unused by Barrier

	// Counts and Displs are in elements, one for each rank. If Displs is nil, the blocks
	// follow each other. Only the kinds that name them use them; ranks other than the root of
	// Gatherv and Scatterv use Count instead. The Plan keeps the slices: they must not change
	// while it is in use.
	Counts, Displs   []int64
	SCounts, SDispls []int64
	RCounts, RDispls []int64

	// Commutative allows the algorithms that change the order of operands.
	// Without it operands are combined in rank order.
	Commutative bool
	// InPlace says that In and Out start at the same address, as with MPI_IN_PLACE. In Gather
	// (at the root), Scatter (at the root) and Allgather it says that the own block is already
	// at its position in the large buffer. Its value may differ between ranks. Ranks other
	// than the root of a rooted kind ignore it, and Alltoall does not allow it.
	InPlace bool

	Algorithm Algorithm // Auto, or one by name
	Table     *Table    // the job's own choice for Auto; nil: none

	// Pods has the pod of each rank, by any numbering, for TwoLevel; nil if pods do not
	// matter. A caller that makes several plans for one communicator makes the Layout itself;
	// then Pods is ignored.
	Pods   []int32
	Layout *Layout
}

// Buf names a piece of memory of the caller.
type Buf uint8

// In has the contribution of the rank, Out receives its result, and Scratch is memory that has
// no other user while the plan runs.
const (
	In Buf = iota
	Out
	Scratch
)

// StepOp is what a Step does.
type StepOp uint8

const (
	// Send sends Len bytes at Src to Peer.
	Send StepOp = iota + 1
	// Recv receives exactly Len bytes from Peer to Dst.
	Recv
	// Fold combines Len bytes at Src into Dst, element by element:
	// Dst = Src op Dst, or Dst = Dst op Src if Reversed is set.
	Fold
	// Copy copies Len bytes from Src to Dst, which do not overlap.
	Copy
)

// Step is one action of a round. A Send is received by the Recv with the same two ranks and
// the same Tag, in their order; both have the same Len.
type Step struct {
	Op       StepOp
	Reversed bool // of Fold: Dst is the left operand
	Dst, Src Buf
	Peer     int32  // comm rank, of Send and Recv
	Tag      uint32 // tag of Send and Recv: below 2^22, the number of the round
	DstOff   int64  // bytes from the start of Dst
	SrcOff   int64  // bytes from the start of Src
	Len      int64  // bytes; 0 only in Barrier
}

// Rooted kinds have a root.
func (k Kind) Rooted() bool {
	switch k {
	case Bcast, Reduce, Gather, Gatherv, Scatter, Scatterv:
		return true
	}
	return false
}

// reducing kinds combine elements.
func (k Kind) reducing() bool {
	return k == Reduce || k == Allreduce || k == Scan || k == ReduceScatter
}

var kindNames = [...]string{
	"no collective", "barrier", "bcast", "reduce", "allreduce", "scan", "reduce-scatter",
	"gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
}

// ParseKind returns the kind with the given name, the inverse of String.
func ParseKind(name string) (Kind, error) {
	for i, n := range kindNames[1:] {
		if n == name {
			return Kind(i + 1), nil
		}
	}
	return 0, fmt.Errorf("coll: no collective is named %q; use one of %v", name, kindNames[1:])
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown collective"
}
