package is

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

// rank does one iteration: it determines the rank of every key (RNR-94-007
// chapter 2, "Kernel IS") and returns how many of the probes that fall on this
// rank have their published rank.
func (s *sorter) rank(ctx context.Context, iteration int) (passed int, err error) {
	if s.me == 0 {
		plant(s.p, iteration, s.keys)
	}
	s.countBuckets()
	s.fillBuckets()
	if err := outrigger.Allreduce(ctx, s.comm, s.local, s.totals, outrigger.Sum); err != nil {
		return 0, fmt.Errorf("adding bucket sizes: %w", err)
	}
	if err := s.redistribute(ctx); err != nil {
		return 0, err
	}
	s.populate()
	return s.probe(iteration), nil
}

// countBuckets leaves the local bucket sizes in local, and behind them the keys
// of the probes that are on this rank (zero for the others, so that the sum
// over the ranks is the key).
func (s *sorter) countBuckets() {
	clear(s.local)
	sizes, shift := s.local[:s.p.buckets()], s.p.shift()
	for i, probe := range s.p.probes {
		if j := probe.index - s.first; 0 <= j && j < len(s.keys) {
			s.local[s.p.buckets()+i] = s.keys[j]
		}
	}
	for _, k := range s.keys {
		sizes[k>>shift]++
	}
}

// fillBuckets sorts the keys by bucket into bucketed.
func (s *sorter) fillBuckets() {
	next := int32(0)
	for b := range s.cursor {
		s.cursor[b] = next
		next += s.local[b]
	}
	cursor, shift, out := s.cursor, s.p.shift(), s.bucketed
	for _, k := range s.keys {
		b := k >> shift
		out[cursor[b]] = k
		cursor[b]++
	}
}

// redistribute sends every key to the rank that owns its bucket.
func (s *sorter) redistribute(ctx context.Context) error {
	buckets := s.p.buckets()
	assign(s.totals[:buckets], s.p.keys(), s.owner)
	for r := range s.sendCounts {
		s.sendCounts[r] = sumRange(s.local, s.owner[r], s.owner[r+1])
		s.counts[r] = int32(s.sendCounts[r])
	}
	if err := outrigger.Alltoall(ctx, s.comm, s.counts, s.countsIn); err != nil {
		return fmt.Errorf("exchanging key counts: %w", err)
	}
	for r, n := range s.countsIn {
		s.recvCounts[r] = int(n)
	}
	packed(s.sendCounts, s.sendDispls)
	if err := s.reserve(packed(s.recvCounts, s.recvDispls)); err != nil {
		return err
	}
	if err := outrigger.Alltoallv(ctx, s.comm, s.bucketed, s.sendCounts, s.sendDispls,
		s.received, s.recvCounts, s.recvDispls); err != nil {
		return fmt.Errorf("exchanging keys: %w", err)
	}
	return nil
}

// populate counts how often each key value occurs on this rank and sums the
// counts up: afterwards population[k-low] keys here are not greater than k.
func (s *sorter) populate() {
	lo, hi := s.owner[s.me], s.owner[s.me+1]
	s.low = lo << s.p.shift()
	s.lesser = sumRange(s.totals, 0, lo)
	width := (hi - lo) << s.p.shift()
	if width > cap(s.population) {
		s.population = make([]int32, width)
	}
	s.population = s.population[:width]
	clear(s.population)
	population, low := s.population, int32(s.low)
	for _, k := range s.received {
		population[k-low]++
	}
	sum := int32(0)
	for i, n := range population {
		sum += n
		population[i] = sum
	}
}

// probe does NPB's partial verification: it returns how many of this rank's probes
// have the expected rank.
func (s *sorter) probe(iteration int) (passed int) {
	for i, probe := range s.p.probes {
		k := int(s.totals[s.p.buckets()+i]) - s.low
		if k < 0 || k >= len(s.population) {
			continue
		}
		rank := int64(s.lesser) // the number of smaller keys
		if k > 0 {
			rank += int64(s.population[k-1])
		}
		if rank == probe.expected(iteration) {
			passed++
		}
	}
	return passed
}
