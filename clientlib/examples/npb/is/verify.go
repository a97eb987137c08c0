package is

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
)

const tagEdge = 1000 // NPB's tag for the neighbour exchange

// sorted returns this rank's keys in ascending order: the rank of a key is its index.
// It changes population.
func (s *sorter) sorted() []int32 {
	out := make([]int32, len(s.received))
	for _, k := range s.received {
		i := k - int32(s.low)
		s.population[i]--
		out[s.population[i]] = k
	}
	return out
}

// disorder does NPB's full verification: it counts the keys of this rank that are
// smaller than the key before them, including the first one, whose predecessor is on
// another rank.
func (s *sorter) disorder(ctx context.Context) (int, error) {
	keys := s.sorted()
	before, err := s.largestBefore(ctx, keys)
	if err != nil {
		return 0, fmt.Errorf("comparing with the neighbouring rank: %w", err)
	}
	wrong := 0
	for _, k := range keys {
		if k < before {
			wrong++
		}
		before = k
	}
	return wrong, nil
}

// largestBefore returns the largest key of the ranks below, or -1, and sends the
// rank above its own largest key. A rank without keys sends the key it received.
func (s *sorter) largestBefore(ctx context.Context, keys []int32) (int32, error) {
	me, ranks := s.me, s.comm.Size()
	mine, below := s.edge[0:1], s.edge[1:2]
	below[0] = -1
	var heard outrigger.Request
	var err error
	if me > 0 {
		if heard, err = outrigger.Irecv(s.comm, below, me-1, tagEdge); err != nil {
			return 0, err
		}
	}
	if len(keys) == 0 {
		if _, err := heard.Wait(ctx); err != nil {
			return 0, err
		}
		heard = outrigger.Request{}
		mine[0] = below[0]
	} else {
		mine[0] = keys[len(keys)-1]
	}
	if me < ranks-1 {
		if err := outrigger.Send(ctx, s.comm, mine, me+1, tagEdge); err != nil {
			return 0, err
		}
	}
	_, err = heard.Wait(ctx)
	return below[0], err
}
