package mg

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/randlc"
)

// The right-hand side v is zero except for ten charges of −1 and ten of +1, in the
// cells in which the pseudorandom sequence, assigned to the grid along memory, has its
// ten smallest and ten largest values (NPB's zran3).
const charges = 10

// candidate is a cell that may get a charge; place is its index in a field.
type candidate struct {
	value float64
	place int
}

// candidates finds the rank's ten smallest and ten largest values, sorted with
// the most extreme one first. If a rank has fewer than ten cells, the rest are
// candidates that are worse than every cell (place −1).
func candidates(topo topology, edge int) (low, high []candidate) {
	low, high = fill(candidate{1, -1}), fill(candidate{0, -1})
	f := field{n: topo.local(edge)}
	f.width = f.n[0] + 2
	f.plane = f.width * (f.n[1] + 2)
	values := make([]float64, f.n[0])
	for k := 1; k <= f.n[2]; k++ {
		for j := 1; j <= f.n[1]; j++ {
			drawRow(topo, edge, j, k, values)
			for i, x := range values {
				if x < low[charges-1].value {
					insert(low, candidate{x, f.at(j, k) + i + 1}, +1)
				}
				if x > high[charges-1].value {
					insert(high, candidate{x, f.at(j, k) + i + 1}, -1)
				}
			}
		}
	}
	return low, high
}

func fill(c candidate) []candidate { return slices.Repeat([]candidate{c}, charges) }

// drawRow computes the random values of the rank's own cells in row (j,k).
func drawRow(topo topology, edge, j, k int, values []float64) {
	at := topo.origin(topo.at, edge)
	x, y, z := at[0], at[1]+j-1, at[2]+k-1
	s := randlc.New(randlc.Seed)
	s.Skip((uint64(z)*uint64(edge)+uint64(y))*uint64(edge) + uint64(x))
	s.Fill(values)
}

// insert replaces the last of sorted by c and restores the order, which is
// ascending for sign +1 and descending for −1.
func insert(sorted []candidate, c candidate, sign int) {
	i := len(sorted) - 1
	for ; i > 0 && sign*cmp.Compare(c.value, sorted[i-1].value) < 0; i-- {
		sorted[i] = sorted[i-1]
	}
	sorted[i] = c
}

// limits returns, of all ranks' candidate values, the tenth smallest of the low
// ones and the tenth largest of the high ones. No two values of the sequence
// are equal in its period, so that exactly ten cells reach each limit.
func limits(low, high []float64) (lowest, highest float64) {
	slices.Sort(low)
	slices.Sort(high)
	return low[charges-1], high[len(high)-charges]
}

// place sets v to this rank's charges, and to zero elsewhere.
func place(v field, low, high []candidate, lowest, highest float64) {
	v.zero()
	for i := range charges {
		if low[i].place >= 0 && low[i].value <= lowest {
			v.v[low[i].place] = -1
		}
		if high[i].place >= 0 && high[i].value >= highest {
			v.v[high[i].place] = +1
		}
	}
}

// charge sets v to the right-hand side, without its ghosts. It is collective: every
// rank gathers the candidates of all ranks, and all make the same choice.
func charge(ctx context.Context, comm *outrigger.Comm, arena *bench.Arena, topo topology, edge int, v field) error {
	mine, err := bench.Buffer[float64](arena, 2*charges, "candidates")
	if err != nil {
		return err
	}
	all, err := bench.Buffer[float64](arena, 2*charges*comm.Size(), "all ranks' candidates")
	if err != nil {
		return err
	}
	low, high := candidates(topo, edge)
	for i := range charges {
		mine[i], mine[charges+i] = low[i].value, high[i].value
	}
	if err := outrigger.Allgather(ctx, comm, mine, all); err != nil {
		return fmt.Errorf("comparing candidates: %w", err)
	}
	lows, highs := make([]float64, 0, len(all)/2), make([]float64, 0, len(all)/2)
	for block := range slices.Chunk(all, 2*charges) {
		lows = append(lows, block[:charges]...)
		highs = append(highs, block[charges:]...)
	}
	lowest, highest := limits(lows, highs)
	place(v, low, high, lowest, highest)
	return nil
}
