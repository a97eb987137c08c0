package cg

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"

// sparseVector is one generating vector of the matrix.
type sparseVector struct {
	index []int32
	value []float64
}

// generator draws the sparse random vectors of NPB (RNR-94-007 chapter 2, "Kernel
// CG": MAKEA).
// The sequence is global: every rank draws all vectors and uses what falls in
// its block, so that the matrix does not depend on the number of ranks.
type generator struct {
	n, nonzer int
	scale     float64 // smallest power of two not less than n
	stream    randlc.Stream
	taken     []bool // positions of the vector being drawn; all false between
}

func newGenerator(n, nonzer int) *generator {
	g := &generator{n: n, nonzer: nonzer, scale: 2, stream: randlc.New(randlc.Seed), taken: make([]bool, n)}
	for int(g.scale) < n {
		g.scale *= 2
	}
	g.stream.Next() // NPB draws one number, into zeta, before the matrix
	return g
}

// next draws the vector of the given row: nonzer random values at distinct
// random positions, and one half at the row's own position, replacing what was
// drawn there.
func (g *generator) next(row int) sparseVector {
	v := g.draw()
	for k, i := range v.index {
		g.taken[i] = false
		if int(i) == row {
			v.value[k] = 0.5
			row = -1
		}
	}
	if row >= 0 {
		v.index = append(v.index, int32(row))
		v.value = append(v.value, 0.5)
	}
	return v
}

// draw leaves taken set at the positions that it returns. A position beyond n
// or drawn before costs its two numbers of the stream and is thrown away.
func (g *generator) draw() sparseVector {
	v := sparseVector{index: make([]int32, 0, g.nonzer+1), value: make([]float64, 0, g.nonzer+1)}
	for len(v.index) < g.nonzer {
		value := g.stream.Next()
		i := int(g.scale * g.stream.Next())
		if i >= g.n || g.taken[i] {
			continue
		}
		g.taken[i] = true
		v.index = append(v.index, int32(i))
		v.value = append(v.value, value)
	}
	return v
}
