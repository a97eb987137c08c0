package lu

import (
	"context"
	"fmt"

	outrigger "github.com/outrigger-hpc/outrigger/clientlib"
	"github.com/outrigger-hpc/outrigger/clientlib/examples/npb/bench"
)

// faces exchanges the solution's outermost points with the four neighbours, as
// many deep as the halo, in all planes at once.
type faces struct {
	sides []side
	reqs  []outrigger.Request
}

// side is one neighbour; its buffers are arena memory.
type side struct {
	axis, step, peer int
	out, in          []float64
}

func newFaces(arena *bench.Arena, d domain) (*faces, error) {
	f := &faces{}
	for axis := range 2 {
		for _, step := range []int{-1, +1} {
			s := side{axis: axis, step: step, peer: d.neighbour(axis, step)}
			if s.peer == none {
				continue
			}
			numbers := len(vector{}) * halo * d.n[1-axis] * d.edge
			var err error
			if s.out, err = bench.Buffer[float64](arena, numbers, "faces to send"); err != nil {
				return nil, err
			}
			if s.in, err = bench.Buffer[float64](arena, numbers, "faces to receive"); err != nil {
				return nil, err
			}
			f.sides = append(f.sides, s)
		}
	}
	return f, nil
}

// tag tells the two directions of an axis apart, since both may lead to the same
// rank. The tags below 4 are those of the waves.
func (s side) tag(step int) int { return 4 + 2*s.axis + (1+step)/2 }

// exchange fills the halo of u. It is collective.
func (f *faces) exchange(ctx context.Context, s *solver, u []vector) error {
	f.reqs = f.reqs[:0]
	for _, side := range f.sides {
		request, err := outrigger.Irecv(s.comm, side.in, side.peer, side.tag(-side.step))
		if err != nil {
			return err
		}
		f.reqs = append(f.reqs, request)
	}
	for _, side := range f.sides {
		s.eachOfFace(side, 0, func(n, p int) { copy(side.out[n*len(vector{}):], u[p][:]) })
		request, err := outrigger.Isend(s.comm, side.out, side.peer, side.tag(side.step))
		if err != nil {
			return err
		}
		f.reqs = append(f.reqs, request)
	}
	if err := outrigger.WaitAll(ctx, f.reqs); err != nil {
		return fmt.Errorf("exchanging faces: %w", err)
	}
	for _, side := range f.sides {
		s.eachOfFace(side, halo, func(n, p int) { copy(u[p][:], side.in[n*len(vector{}):]) })
	}
	return nil
}

// eachOfFace calls f for the points of a face, numbered by growing coordinates:
// this rank's own (shift 0), or the neighbour's beyond them (shift halo).
func (s *solver) eachOfFace(side side, shift int, f func(n, p int)) {
	lo := -shift
	if side.step > 0 {
		lo = s.n[side.axis] - halo + shift
	}
	n := 0
	for k := range s.edge {
		for across := range s.n[1-side.axis] {
			for layer := range halo {
				at := [2]int{}
				at[side.axis], at[1-side.axis] = lo+layer, across
				f(n, s.at(at[0], at[1], k))
				n++
			}
		}
	}
}
