package ep

import "github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"

// problem is one class: 2^log2Pairs pairs, and the published sums.
type problem struct {
	log2Pairs int
	x, y      float64
}

var problems = map[bench.Class]problem{
	bench.S: {log2Pairs: 24, x: -3.247834652034740e3, y: -6.958407078382297e3},
	bench.W: {log2Pairs: 25, x: -2.863319731645753e3, y: -6.320053679109499e3},
	bench.A: {log2Pairs: 28, x: -4.295875165629892e3, y: -1.580732573678431e4},
	bench.B: {log2Pairs: 30, x: 4.033815542441498e4, y: -2.660669192809235e4},
}

const (
	log2BatchPairs = 16   // NPB's mk: pairs of one batch, the unit of work of a rank
	annuli         = 10   // counters of the deviates by largest magnitude
	tolerance      = 1e-8 // relative error of either sum that NPB accepts
)

func (p problem) batches() int { return 1 << (p.log2Pairs - log2BatchPairs) }

// numbers returns how many pseudorandom numbers are drawn, which is also NPB's
// operation count.
func (p problem) numbers() int { return 1 << (p.log2Pairs + 1) }
