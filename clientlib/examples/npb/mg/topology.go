package mg

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// Axes: 0 runs along memory. A triple holds one number for each.
type triple [3]int

// topology is one rank's position in the three-dimensional grid of ranks. Axis 0
// varies fastest in the rank number and is the last one to be divided, since
// its faces are the most scattered in memory.
type topology struct {
	ranks triple // along each axis, powers of two
	at    triple
}

func newTopology(ranks, rank int) (topology, error) {
	log2, err := bench.Log2Ranks(ranks)
	if err != nil {
		return topology{}, err
	}
	x := log2 / 3
	y := (log2 - x) / 2
	t := topology{ranks: triple{1 << x, 1 << y, 1 << (log2 - x - y)}}
	t.at = t.place(rank)
	return t, nil
}

// alone returns the topology of a grid that is not divided among ranks.
func alone() topology { return topology{ranks: triple{1, 1, 1}} }

func (t topology) place(rank int) triple {
	return triple{rank % t.ranks[0], rank / t.ranks[0] % t.ranks[1], rank / (t.ranks[0] * t.ranks[1])}
}

func (t topology) rank(at triple) int {
	return at[0] + t.ranks[0]*(at[1]+t.ranks[1]*at[2])
}

// neighbour returns the rank one step up (+1) or down (-1) an axis; the grid of
// ranks is periodic like the grid of cells.
func (t topology) neighbour(axis, step int) int {
	at := t.at
	at[axis] = (at[axis] + step + t.ranks[axis]) % t.ranks[axis]
	return t.rank(at)
}

// local returns the number of cells that a rank holds along each axis of a grid with
// the given edge.
func (t topology) local(edge int) triple {
	return triple{edge / t.ranks[0], edge / t.ranks[1], edge / t.ranks[2]}
}

// origin returns the global position of the rank's first cell.
func (t topology) origin(at triple, edge int) triple {
	n := t.local(edge)
	return triple{at[0] * n[0], at[1] * n[1], at[2] * n[2]}
}

// coarsest returns the lowest level (edge 2^level) of which every rank has a cell. It
// fails if that is not below the level of the full grid.
func (t topology) coarsest(levels int) (int, error) {
	level := 1
	for most := max(t.ranks[0], t.ranks[1], t.ranks[2]); 1<<level < most; {
		level++
	}
	if level >= levels {
		return 0, fmt.Errorf("%w: %d x %d x %d ranks divide a grid of edge %d too finely, start fewer",
			bench.ErrRanks, t.ranks[0], t.ranks[1], t.ranks[2], 1<<levels)
	}
	return level, nil
}
