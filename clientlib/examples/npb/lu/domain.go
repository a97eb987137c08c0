package lu

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// none is the rank of a neighbour beyond the edge of the cube.
const none = -1

// domain is one rank's part of the cube: it is divided along x and y, and every
// rank has all of z.
type domain struct {
	edge         int    // points of the whole cube along each axis
	ranks, coord [2]int // the grid of ranks along x and y, and this rank's coordinates
	first, n     [2]int // this rank's first point, and number of points
	start, end   [2]int // range of those points that are computed: not on the boundary
}

func newDomain(edge, ranks, rank int) (domain, error) {
	d := domain{edge: edge, ranks: divide(ranks)}
	if most := max(d.ranks[0], d.ranks[1]); edge/most < halo {
		return domain{}, fmt.Errorf("%w: %d x %d ranks leave one less than %d of %d points along an edge, start fewer",
			bench.ErrRanks, d.ranks[0], d.ranks[1], halo, edge)
	}
	d.coord = [2]int{rank % d.ranks[0], rank / d.ranks[0]}
	for axis := range 2 {
		lo, hi := bench.Block(edge, d.ranks[axis], d.coord[axis])
		d.first[axis], d.n[axis] = lo, hi-lo
		d.start[axis], d.end[axis] = max(1-lo, 0), min(edge-1-lo, hi-lo)
	}
	return d, nil
}

// divide returns the grid of ranks that is nearest to a square.
func divide(ranks int) [2]int {
	x := 1
	for d := 2; d*d <= ranks; d++ {
		if ranks%d == 0 {
			x = d
		}
	}
	return [2]int{x, ranks / x}
}

// neighbour returns the rank one step up (+1) or down (−1) an axis, or none.
func (d domain) neighbour(axis, step int) int {
	at := d.coord
	at[axis] += step
	if at[axis] < 0 || at[axis] >= d.ranks[axis] {
		return none
	}
	return at[0] + d.ranks[0]*at[1]
}

// global returns the position in the cube of the rank's point (i,j,k).
func (d domain) global(i, j, k int) [3]int { return [3]int{d.first[0] + i, d.first[1] + j, k} }

// interior calls f for each row of points that are computed, along memory, with the
// index of its first point and the number of its points.
func (d domain) interior(g geometry, f func(at, n, j, k int)) {
	for k := 1; k < d.edge-1; k++ {
		for j := d.start[1]; j < d.end[1]; j++ {
			f(g.at(d.start[0], j, k), d.end[0]-d.start[0], j, k)
		}
	}
}
