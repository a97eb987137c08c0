package lu

import "context"

// The implicit scheme is (D + ωL)·D⁻¹·(D + ωU)·Δu = Δt·R, where D, L and U are
// blocks of 5 x 5 numbers: a point's own, of its lower and of its upper
// neighbours. The lower sweep goes through the points in order, the upper one
// in reverse. A rank can compute a plane of z as soon as the preceding neighbours have
// computed their part of it: wavefronts run across the ranks.

// lower solves (D + ωL)·v = r in place, plane by plane.
func (s *solver) lower(ctx context.Context) error {
	s.up.begin(s.edge - 2)
	for k := 1; k < s.edge-1; k++ {
		if err := s.up.receive(ctx, s, k); err != nil {
			return err
		}
		for j := s.start[1]; j < s.end[1]; j++ {
			for p, end := s.at(s.start[0], j, k), s.at(s.end[0], j, k); p < end; p++ {
				sum := s.neighbours(p, -1)
				v := &s.r[p]
				for m := range v {
					v[m] -= omega * sum[m]
				}
				s.diagonal.solve(&s.states[p], v)
			}
		}
		if err := s.up.send(ctx, s, k); err != nil {
			return err
		}
	}
	return s.up.flush(ctx)
}

// upper solves (1 + ωD⁻¹U)·v = r in place, from the last plane to the first.
func (s *solver) upper(ctx context.Context) error {
	s.down.begin(s.edge - 2)
	for k := s.edge - 2; k > 0; k-- {
		if err := s.down.receive(ctx, s, k); err != nil {
			return err
		}
		for j := s.end[1] - 1; j >= s.start[1]; j-- {
			for p, end := s.at(s.end[0]-1, j, k), s.at(s.start[0], j, k); p >= end; p-- {
				sum := s.neighbours(p, +1)
				s.diagonal.solve(&s.states[p], &sum)
				v := &s.r[p]
				for m := range v {
					v[m] -= omega * sum[m]
				}
			}
		}
		if err := s.down.send(ctx, s, k); err != nil {
			return err
		}
	}
	return s.down.flush(ctx)
}

// neighbours returns L·r (step −1) or U·r (step +1) at a point.
func (s *solver) neighbours(p, step int) vector {
	var sum vector
	for axis, stride := range s.strides {
		q := p + step*stride
		s.states[q].convect(axis, float64(step)*s.convectFactor, &s.r[q], &sum)
		s.states[q].diffuse(axis, -s.diffuseFactor, &s.r[q], &sum)
	}
	return sum
}
