package ep

import (
	"math"

	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"
)

// tally is the result of EP: the sums of the deviates and the number of pairs in
// each square annulus l ≤ max(|x|,|y|) < l+1. Counts are floating point as in NPB,
// so that one reduction adds both; they are exact.
type tally struct {
	x, y  float64
	count [annuli]float64
}

// batch adds pairs b·2¹⁶ to (b+1)·2¹⁶ of the global sequence. The recurrence is
// stepped in registers: it is half of the benchmark's work.
func (t *tally) batch(b uint64) {
	s := randlc.New(randlc.SeedEP)
	s.Skip(b << (log2BatchPairs + 1))
	state := s.State()
	sumX, sumY := t.x, t.y
	for range 1 << log2BatchPairs {
		state = state * randlc.Multiplier & randlc.Mask
		u := 2*(float64(state)*randlc.Scale) - 1
		state = state * randlc.Multiplier & randlc.Mask
		v := 2*(float64(state)*randlc.Scale) - 1
		square := u*u + v*v
		if square > 1 {
			continue
		}
		factor := math.Sqrt(-2 * math.Log(square) / square)
		x, y := u*factor, v*factor
		t.count[int(max(math.Abs(x), math.Abs(y)))]++
		sumX += x
		sumY += y
	}
	t.x, t.y = sumX, sumY
}
