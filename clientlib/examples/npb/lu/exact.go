package lu

// exactTerms are the coefficients of the exact solution: for each component the
// constant, then those of x, y, z, of their squares, cubes and fourth powers.
var exactTerms = [5][13]float64{
	{2, 0, 0, 4, 5, 3, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
	{1, 0, 0, 0, 1, 2, 3, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
	{2, 2, 0, 0, 0, 2, 3, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
	{2, 2, 0, 0, 0, 2, 3, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
	{5, 4, 3, 2, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
}

// exact returns the solution at a point of the unit cube.
func exact(at [3]float64) vector {
	var u vector
	for m := range u {
		c := &exactTerms[m]
		u[m] = c[0]
		for axis, x := range at {
			u[m] += x * (c[1+axis] + x*(c[4+axis]+x*(c[7+axis]+x*c[10+axis])))
		}
	}
	return u
}

// initial returns the exact solution on the boundary, and inside an interpolation of
// the six boundary points on the axes through this point.
func initial(at [3]float64, boundary bool) vector {
	if boundary {
		return exact(at)
	}
	var p [3]vector
	for axis, x := range at {
		low, high := at, at
		low[axis], high[axis] = 0, 1
		a, b := exact(low), exact(high)
		for m := range a {
			p[axis][m] = (1-x)*a[m] + x*b[m]
		}
	}
	var u vector
	for m := range u {
		x, y, z := p[0][m], p[1][m], p[2][m]
		u[m] = x + y + z - x*y - y*z - z*x + x*y*z
	}
	return u
}

// fill sets u at all points that this rank stores, the halo included, to the value of
// the point in the unit cube.
func (s *solver) fill(u []vector, value func(at [3]float64, boundary bool) vector) {
	last := s.edge - 1
	for k := range s.edge {
		for j := -halo; j < s.n[1]+halo; j++ {
			for i := -halo; i < s.n[0]+halo; i++ {
				g := s.global(i, j, k)
				if min(g[0], g[1]) < 0 || max(g[0], g[1]) > last {
					continue
				}
				boundary := min(g[0], g[1], g[2]) == 0 || max(g[0], g[1], g[2]) == last
				u[s.at(i, j, k)] = value([3]float64{float64(g[0]) * s.mesh, float64(g[1]) * s.mesh, float64(g[2]) * s.mesh}, boundary)
			}
		}
	}
}
