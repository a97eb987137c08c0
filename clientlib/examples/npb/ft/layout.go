package ft

import (
	"fmt"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// layout is one rank's share of the box in its two divisions. Divided along z a
// rank has whole planes, in which x and y can be transformed; divided along y it
// has whole columns of z. In both x runs along memory:
//
//	by z   [z − firstZ][y][x]
//	by y   [y − firstY][z][x]
type layout struct {
	nx, ny, nz    int
	ranks         int
	planes, rows  int // this rank's number of z, of y
	firstZ        int
	firstY        int
	blockElements int // elements of a block from one rank to another: planes·rows·nx
}

func newLayout(p problem, ranks, rank int) (layout, error) {
	if _, err := bench.Log2Ranks(ranks); err != nil {
		return layout{}, err
	}
	if most := min(p.ny, p.nz); ranks > most {
		return layout{}, fmt.Errorf("%w: got %d, a box of %d x %d x %d points can be divided among at most %d",
			bench.ErrRanks, ranks, p.nx, p.ny, p.nz, most)
	}
	l := layout{nx: p.nx, ny: p.ny, nz: p.nz, ranks: ranks, planes: p.nz / ranks, rows: p.ny / ranks}
	l.firstZ, l.firstY = rank*l.planes, rank*l.rows
	l.blockElements = l.planes * l.rows * l.nx
	return l, nil
}

// elements returns the number of points that a rank holds, in either division.
func (l layout) elements() int { return l.ranks * l.blockElements }

// A block is sent as [z][y][x], with the z of the rank of the division by z and the y
// of the rank of the division by y. Each function below copies rows of nx between a
// division and the blocks for or from all ranks, in order.

// planesToBlocks packs data divided by z.
func (l layout) planesToBlocks(u, blocks []complex128) {
	l.eachRow(func(rank, z, y, at int) {
		copy(blocks[at:at+l.nx], u[(z*l.ny+rank*l.rows+y)*l.nx:])
	})
}

// blocksToColumns unpacks into the division by y.
func (l layout) blocksToColumns(blocks, u []complex128) {
	l.eachRow(func(rank, z, y, at int) {
		copy(u[(y*l.nz+rank*l.planes+z)*l.nx:], blocks[at:at+l.nx])
	})
}

// columnsToBlocks packs data divided by y.
func (l layout) columnsToBlocks(u, blocks []complex128) {
	l.eachRow(func(rank, z, y, at int) {
		copy(blocks[at:at+l.nx], u[(y*l.nz+rank*l.planes+z)*l.nx:])
	})
}

// blocksToPlanes unpacks into the division by z.
func (l layout) blocksToPlanes(blocks, u []complex128) {
	l.eachRow(func(rank, z, y, at int) {
		copy(u[(z*l.ny+rank*l.rows+y)*l.nx:], blocks[at:at+l.nx])
	})
}

// eachRow calls f for the rows of all blocks: z and y count within a block, and
// at is the row's offset in the blocks.
func (l layout) eachRow(f func(rank, z, y, at int)) {
	at := 0
	for rank := range l.ranks {
		for z := range l.planes {
			for y := range l.rows {
				f(rank, z, y, at)
				at += l.nx
			}
		}
	}
}
