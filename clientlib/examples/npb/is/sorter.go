package is

import (
	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// sorter is one rank's state. Message buffers are arena memory; keys and
// population are not sent.
type sorter struct {
	p     problem
	comm  *outrigger.Comm
	me    int // the rank
	first int // global position of keys[0]

	keys     []int32 // this rank's part of the unsorted sequence
	bucketed []int32 // arena: the same keys, sorted by bucket
	received []int32 // arena: keys of this rank's buckets, grown on demand
	inbox    *bench.Arena

	// Bucket sizes, with the probes' keys behind them so that one reduction
	// serves both, as in NPB.
	local, totals []int32 // arena

	owner                  []int // rank r owns buckets owner[r] to owner[r+1]
	sendCounts, recvCounts []int
	sendDispls, recvDispls []int
	counts, countsIn       []int32 // arena: buffers of Alltoall
	cursor                 []int32 // next free place of each bucket

	// population[k-low] counts this rank's keys up to k once ranked; low is the
	// smallest key value that its buckets may hold, lesser the number of keys
	// on lower ranks.
	population  []int32
	low, lesser int

	edge []int32 // arena: the neighbour exchange of full verification
}

func newSorter(p problem, comm *outrigger.Comm, arena *bench.Arena) (*sorter, error) {
	ranks := comm.Size()
	lo, hi := bench.Block(p.keys(), ranks, comm.Rank())
	s := &sorter{
		p: p, comm: comm, me: comm.Rank(), first: lo,
		keys:   make([]int32, hi-lo),
		inbox:  arena.Child(),
		owner:  make([]int, ranks+1),
		cursor: make([]int32, p.buckets()),
	}
	s.sendCounts, s.recvCounts = make([]int, ranks), make([]int, ranks)
	s.sendDispls, s.recvDispls = make([]int, ranks), make([]int, ranks)
	for _, b := range []struct {
		buffer  *[]int32
		n       int
		purpose string
	}{
		{&s.bucketed, hi - lo, "keys to send"},
		{&s.local, p.buckets() + probeCount, "bucket sizes"},
		{&s.totals, p.buckets() + probeCount, "global bucket sizes"},
		{&s.counts, ranks, "send counts"},
		{&s.countsIn, ranks, "receive counts"},
		{&s.edge, 2, "neighbour's largest key"},
	} {
		var err error
		if *b.buffer, err = bench.Buffer[int32](arena, b.n, b.purpose); err != nil {
			return nil, err
		}
	}
	generate(p, lo, s.keys)
	return s, nil
}

// reserve makes room for n received keys. The planted keys sometimes move a bucket
// from one rank to the next, so the room grows by more than is needed.
func (s *sorter) reserve(n int) error {
	if n <= cap(s.received) {
		s.received = s.received[:n]
		return nil
	}
	if err := s.inbox.Release(); err != nil {
		return err
	}
	b, err := bench.Buffer[int32](s.inbox, n+n/16, "received keys")
	if err != nil {
		return err
	}
	s.received = b[:n]
	return nil
}
