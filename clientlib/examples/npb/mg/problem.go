package mg

import (
	"math/bits"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// problem is one class: the edge of the cubic periodic grid, the iterations,
// the smoother, and the published L2 norm of the residual.
type problem struct {
	edge, iterations int
	smoother         stencil
	norm             float64
}

// stencil holds the four weights of a 27-point operator that treats all
// directions alike: the centre, the 6 face, 12 edge and 8 corner neighbours.
type stencil [4]float64

var (
	// laplacian is the operator A of the equation A·u = v.
	laplacian = stencil{-8.0 / 3, 0, 1.0 / 6, 1.0 / 12}
	// The approximate inverses S(a), for the classes up to A, and S(b).
	smootherA = stencil{-3.0 / 8, 1.0 / 32, -1.0 / 64, 0}
	smootherB = stencil{-3.0 / 17, 1.0 / 33, -1.0 / 61, 0}
)

var problems = map[bench.Class]problem{
	bench.S: {edge: 32, iterations: 4, smoother: smootherA, norm: 0.5307707005734e-4},
	bench.W: {edge: 128, iterations: 4, smoother: smootherA, norm: 0.6467329375339e-5},
	bench.A: {edge: 256, iterations: 4, smoother: smootherA, norm: 0.2433365309069e-5},
	bench.B: {edge: 256, iterations: 20, smoother: smootherB, norm: 0.1800564401355e-5},
}

const tolerance = 1e-8 // relative error of the norm that NPB accepts

// levels returns the number of grids: edges 2, 4, ... up to the full one.
func (p problem) levels() int { return bits.Len(uint(p.edge)) - 1 }

func (p problem) cells() float64 { return float64(p.edge) * float64(p.edge) * float64(p.edge) }

// operations returns NPB's nominal count: 58 for each cell and iteration.
func (p problem) operations() float64 { return 58 * float64(p.iterations) * p.cells() }
