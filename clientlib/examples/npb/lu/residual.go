package lu

// line is workspace for one row of points along any axis.
type line struct {
	convection []vector // at each point
	viscosity  []vector // between the point before and this one
}

// operator sets r to R(u), without a forcing term, at the points that are
// computed. The states must be those of u, the neighbours' included.
func (s *solver) operator(u, r []vector) {
	s.interior(s.geometry, func(at, n, _, _ int) { clear(r[at : at+n]) })
	for k := 1; k < s.edge-1; k++ {
		for j := s.start[1]; j < s.end[1]; j++ {
			s.along(0, u, r, s.at(s.start[0], j, k), s.first[0]+s.start[0], s.end[0]-s.start[0])
		}
		for i := s.start[0]; i < s.end[0]; i++ {
			s.along(1, u, r, s.at(i, s.start[1], k), s.first[1]+s.start[1], s.end[1]-s.start[1])
		}
	}
	for j := s.start[1]; j < s.end[1]; j++ {
		for i := s.start[0]; i < s.end[0]; i++ {
			s.along(2, u, r, s.at(i, j, 1), 1, s.edge-2)
		}
	}
}

// along adds the terms of one axis for n points in a row: the first has index at in u
// and index global on the cube's edge.
func (s *solver) along(axis int, u, r []vector, at, global, n int) {
	stride := s.strides[axis]
	w := &s.line
	for i := range n + 2 {
		p := at + (i-1)*stride
		w.convection[i] = s.states[p].convection(axis, &u[p])
		w.viscosity[i] = viscosity(axis, &s.states[p-stride], &s.states[p])
	}
	second, first := s.second, s.slope
	for i := range n {
		p := at + i*stride
		c := dissipationAt(global+i, s.edge)
		low2, low, mid, high, high2 := &u[p-2*stride], &u[p-stride], &u[p], &u[p+stride], &u[p+2*stride]
		before, after := &w.convection[i], &w.convection[i+2]
		left, right := &w.viscosity[i+1], &w.viscosity[i+2]
		sum := &r[p]
		for m := range sum {
			sum[m] += -first*(after[m]-before[m]) + second*c34*(right[m]-left[m]) +
				second*diffusion[axis]*(low[m]-2*mid[m]+high[m]) -
				dissipation*(c[0]*low2[m]+c[1]*low[m]+c[2]*mid[m]+c[3]*high[m]+c[4]*high2[m])
		}
	}
}

// dissipationAt returns the coefficients of the fourth difference at a point of an
// edge: near the ends it uses neither the boundary nor points beyond.
func dissipationAt(i, edge int) [5]float64 {
	c := [5]float64{1, -4, 6, -4, 1}
	last := edge - 1
	switch {
	case i == 1:
		c[0], c[1], c[2] = 0, 0, 5
	case i == 2:
		c[0] = 0
	}
	switch {
	case i == last-1:
		c[2], c[3], c[4] = 5, 0, 0
	case i == last-2:
		c[4] = 0
	}
	return c
}

// residual sets r to R(u) minus the forcing term, which is R of the exact solution, so
// that the exact solution has the residual zero.
func (s *solver) residual() {
	s.setStates(s.u)
	s.operator(s.u, s.r)
	s.interior(s.geometry, func(at, n, _, _ int) {
		for p := at; p < at+n; p++ {
			for m := range s.r[p] {
				s.r[p][m] -= s.forcing[p][m]
			}
		}
	})
}

// setStates computes the states of all points of u that are stored.
func (s *solver) setStates(u []vector) {
	for p := range u {
		if u[p][0] != 0 { // zero beyond the cube
			s.states[p].set(&u[p])
		}
	}
}
