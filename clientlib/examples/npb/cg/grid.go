package cg

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"

// span is a half-open range of indices.
type span struct{ lo, hi int }

func (s span) len() int            { return s.hi - s.lo }
func (s span) contains(i int) bool { return s.lo <= i && i < s.hi }

// grid is one rank's position in NPB's two-dimensional decomposition: 2^k ranks
// form a grid of down x across, square or twice as wide as tall, row major. The
// rank has the block rows x cols of the matrix. Vectors are distributed like the
// columns, and every row of ranks has all of them.
type grid struct {
	rank         int
	down, across int
	row, col     int
	rows, cols   span

	// A product of the block with the rank's piece of a vector is a partial sum
	// of rows. Summed over the ranks of the same grid row it is complete; keep
	// is the part of it (counted from rows.lo) that this rank then has, and
	// sends to the rank transpose, whose columns it is.
	keep      span
	transpose int

	// partners are the ranks to exchange partial sums with, farthest first: the
	// dimensions of the hypercube that a grid row is.
	partners []int
}

func newGrid(n, ranks, rank int) (grid, error) {
	log2, err := bench.Log2Ranks(ranks)
	if err != nil {
		return grid{}, err
	}
	g := grid{rank: rank, down: 1 << (log2 / 2), across: 1 << ((log2 + 1) / 2)}
	g.row, g.col = rank/g.across, rank%g.across
	g.rows = block(n, g.down, g.row)
	g.cols = columns(n, g, g.col)
	g.keep = span{0, g.rows.len()}
	if g.wide() {
		g.keep = half(g.keep, g.col)
	}
	g.transpose = g.transposeOf()
	for distance := g.across / 2; distance > 0; distance /= 2 {
		g.partners = append(g.partners, g.row*g.across+(g.col^distance))
	}
	return g, nil
}

// wide reports whether two grid columns share the part that one grid row has.
func (g grid) wide() bool { return g.across != g.down }

func block(n, parts, i int) span {
	lo, hi := bench.Block(n, parts, i)
	return span{lo, hi}
}

// columns splits the columns like the rows, and in a wide grid each block in two.
func columns(n int, g grid, col int) span {
	if !g.wide() {
		return block(n, g.across, col)
	}
	return half(block(n, g.down, col/2), col)
}

// half returns the lower, larger half of s for an even i and the upper one for odd.
func half(s span, i int) span {
	middle := s.lo + (s.len()+1)/2
	if i%2 == 0 {
		return span{s.lo, middle}
	}
	return span{middle, s.hi}
}

// transposeOf returns the rank mirrored at the grid's diagonal. In a wide grid pairs
// of neighbouring columns count as one, and the position in the pair stays.
func (g grid) transposeOf() int {
	if !g.wide() {
		return g.col*g.across + g.row
	}
	return (g.col/2)*g.across + 2*g.row + g.col%2
}

// gives returns the part that this rank sends in the round with partner i: in the
// first round of a wide grid the half that the partner keeps, otherwise its own part.
func (g grid) gives(i int) span {
	if !g.wide() || i != len(g.partners)-1 {
		return g.keep
	}
	return half(span{0, g.rows.len()}, g.col^1)
}
