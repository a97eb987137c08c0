package cg

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"

// problem is one class as NPB 3.x defines it: the order n
// of the matrix, the nonzeros of each generating vector, the outer iterations,
// the eigenvalue shift, and the published zeta.
type problem struct {
	n, nonzer, iterations int
	shift, zeta           float64
}

var problems = map[bench.Class]problem{
	bench.S: {n: 1400, nonzer: 7, iterations: 15, shift: 10, zeta: 8.5971775078648},
	bench.W: {n: 7000, nonzer: 8, iterations: 15, shift: 12, zeta: 10.362595087124},
	bench.A: {n: 14000, nonzer: 11, iterations: 15, shift: 20, zeta: 17.130235054029},
	bench.B: {n: 75000, nonzer: 13, iterations: 75, shift: 60, zeta: 22.712745482631},
}

const (
	conditionNumber = 0.1   // NPB's rcond, the same in every class
	innerSteps      = 25    // conjugate gradient steps in one outer iteration
	tolerance       = 1e-10 // relative error of zeta that NPB accepts
)

// operations returns NPB's nominal count of floating point operations.
func (p problem) operations() float64 {
	row := float64(p.nonzer * (p.nonzer + 1))
	return 2 * float64(p.iterations*p.n) * (3 + row + innerSteps*(5+row) + 3)
}
